package requestrows_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// fieldOf returns the invalid field that an error names, or "".
func fieldOf(err error) string {
	if invalid, ok := errors.AsType[*inventory.InvalidError](err); ok {
		return invalid.Field
	}
	return ""
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(*requestrows.Submission)
		want  string // the invalid field; "": valid
	}{
		"as it is":     {func(*requestrows.Submission) {}, ""},
		"set":          {func(s *requestrows.Submission) { s.Kind = requests.Set }, ""},
		"no kind":      {func(s *requestrows.Submission) { s.Kind = "" }, ""},
		"another kind": {func(s *requestrows.Submission) { s.Kind = "steal" }, "kind"},
		"with a slash": {func(s *requestrows.Submission) { s.VariantID = "rolls/buns" }, ""},
		"128 characters": {func(s *requestrows.Submission) {
			s.CartID, s.VariantID = strings.Repeat("ä", 128), strings.Repeat("🧦", 128)
		}, ""},

		"no cart":                {func(s *requestrows.Submission) { s.CartID = "" }, "cart_id"},
		"129 characters of cart": {func(s *requestrows.Submission) { s.CartID = strings.Repeat("a", 129) }, "cart_id"},
		"NUL in the cart":        {func(s *requestrows.Submission) { s.CartID = "a\x00b" }, "cart_id"},
		"cart in latin-1":        {func(s *requestrows.Submission) { s.CartID = "caf\xe9" }, "cart_id"},
		"half a surrogate pair":  {func(s *requestrows.Submission) { s.CartID = "\xed\xa0\x80" }, "cart_id"},

		"no variant":                {func(s *requestrows.Submission) { s.VariantID = "" }, "variant_id"},
		"129 characters of variant": {func(s *requestrows.Submission) { s.VariantID = strings.Repeat("ä", 129) }, "variant_id"},
		"line break in the variant": {func(s *requestrows.Submission) { s.VariantID = "a\nb" }, "variant_id"},
		"delete in the variant":     {func(s *requestrows.Submission) { s.VariantID = "a\x7f" }, "variant_id"},
		"C1 control in the variant": {func(s *requestrows.Submission) { s.VariantID = "a\u0085" }, "variant_id"},

		"none":  {func(s *requestrows.Submission) { s.Quantity = 0 }, "quantity"},
		"less":  {func(s *requestrows.Submission) { s.Quantity = -1 }, "quantity"},
		"least": {func(s *requestrows.Submission) { s.Quantity = math.MinInt32 }, "quantity"},
		"most":  {func(s *requestrows.Submission) { s.Quantity = inventory.MaxQuantity }, ""},
		"named units": {func(s *requestrows.Submission) {
			s.Quantity, s.Units = 2, &requests.Units{IDs: []string{"a", "b"}}
		}, ""},
		"any 1000 units":       {func(s *requestrows.Submission) { s.Quantity, s.Units = 1000, &requests.Units{Any: true} }, ""},
		"any 1001 units":       {func(s *requestrows.Submission) { s.Quantity, s.Units = 1001, &requests.Units{Any: true} }, "any_of"},
		"named and any":        {func(s *requestrows.Submission) { s.Units = &requests.Units{IDs: []string{"a"}, Any: true} }, "units"},
		"named and contiguous": {func(s *requestrows.Submission) { s.Units = &requests.Units{IDs: []string{"a"}, Contiguous: true} }, "units"},
		"set to named units":   {func(s *requestrows.Submission) { s.Kind, s.Units = requests.Set, &requests.Units{IDs: []string{"a"}} }, "units"},
		"fewer than named":     {func(s *requestrows.Submission) { s.Quantity, s.Units = 3, &requests.Units{IDs: []string{"a", "b"}} }, "unit_ids"},
		"named twice":          {func(s *requestrows.Submission) { s.Quantity, s.Units = 2, &requests.Units{IDs: []string{"a", "a"}} }, "unit_ids[1]"},

		"one too many": {func(s *requestrows.Submission) { s.Quantity = inventory.MaxQuantity + 1 }, "quantity"},
		"far too many": {func(s *requestrows.Submission) { s.Quantity = math.MaxInt32 }, "quantity"},

		"255 characters of key":         {func(s *requestrows.Submission) { s.IdempotencyKey = strings.Repeat("🧦", 255) }, ""},
		"256 characters of key":         {func(s *requestrows.Submission) { s.IdempotencyKey = strings.Repeat("k", 256) }, "idempotency_key"},
		"NUL in the key":                {func(s *requestrows.Submission) { s.IdempotencyKey = "\x00" }, "idempotency_key"},
		"key in latin-1":                {func(s *requestrows.Submission) { s.IdempotencyKey = "\xe9" }, "idempotency_key"},
		"C1 control in the key":         {func(s *requestrows.Submission) { s.IdempotencyKey = "k\u009b31m" }, "idempotency_key"},
		"256 characters of correlation": {func(s *requestrows.Submission) { s.CorrelationID = strings.Repeat("c", 256) }, "correlation_id"},
		"line break in the correlation": {func(s *requestrows.Submission) { s.CorrelationID = "c\r\nd" }, "correlation_id"},
		"NUL in the actor":              {func(s *requestrows.Submission) { s.ActorID = "a\x00" }, "actor_id"},
	} {
		s := requestrows.Submission{TenantID: uuid.New(), CartID: "a", VariantID: "shoe", Quantity: 1, IdempotencyKey: "k", CorrelationID: "c", ActorID: "hf_shop00"}
		c.spoil(&s)
		err := s.Validate()
		if got := fieldOf(err); got != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s: %v, want %q reported as invalid", name, err, c.want)
		}
	}
}

// Postgres accepts every submission that Validate accepts. Admission in groups
// depends on this.
func FuzzValidate(f *testing.F) {
	f.Add("a", "shoe", int32(1), "", "", "", "")
	f.Add("a\x00", "shoe", int32(1), "k", "c", "add", "hf_shop00")
	f.Add("\xff", strings.Repeat("ä", 129), int32(-1), "\u0085", "\x7f", "set", "\xed\xa0\x80")
	f.Add("\u2028", "🧦", int32(1_000_001), strings.Repeat("k", 256), "\t", "none", "\ufffe")
	bench := testkit.New(f, lanes.Normal)
	f.Fuzz(func(t *testing.T, cart, variant string, quantity int32, key, correlation, kind, actor string) {
		s := requestrows.Submission{
			TenantID: bench.Tenant, RequestID: requestrows.NewID(), Kind: requests.Kind(kind), CartID: cart, VariantID: variant, Quantity: quantity,
			IdempotencyKey: key, CorrelationID: correlation, ActorID: actor,
		}
		if err := s.Validate(); err != nil {
			if fieldOf(err) == "" {
				t.Errorf("%v is not an *inventory.InvalidError", err)
			}
			return
		}
		for _, text := range []string{cart, variant, key, correlation, actor} {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) || utf8.RuneCountInString(text) > requestrows.KeyMax {
				t.Errorf("%q passed", text)
			}
		}
		tx, err := bench.DB.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		r, err := admission.SubmitTx(t.Context(), tx, bench.Inserter, s)
		if err != nil {
			t.Fatalf("valid, but not stored: %v", err)
		}
		if r.CartID != cart || r.VariantID != variant || r.Quantity != quantity {
			t.Errorf("stored as %+v", r)
		}
	})
}
