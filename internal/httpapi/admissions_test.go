package httpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/ratelimit"
)

// newMeteredShop opens a shop with metered commands and the rates.
func newMeteredShop(t testing.TB, tenant, customer ratelimit.Rate) *shop {
	t.Helper()
	db := pgtest.New(t)
	if err := migrations.Up(t.Context(), db, &migrations.Config{Metered: true}); err != nil {
		t.Fatal(err)
	}
	return openShop(t, db, holdfast.Config{
		Intake: admission.IntakeConfig{Metered: true}, Rates: holdfast.Rates{Tenant: tenant, Customer: customer},
	})
}

// mint mints an admission token by the API and returns its plaintext.
func (s *shop) mint(body string) string {
	s.t.Helper()
	token := s.call(200, "POST", "/v1/admissions", body).text(s.t, "token")
	if !tokens.WellFormed(token) {
		s.t.Fatalf("the minted token of %d characters is invalid", len(token))
	}
	return token
}

// TestMeteringOff checks that without metered commands there is no path for
// tokens and no rule about them, and that their headers are ignored.
func TestMeteringOff(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, method := range []string{"GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"} {
		r := s.call(404, method, "/v1/admissions", `{"subject":"customer-1"}`)
		s.isProblem(r, noRoute)
	}
	if item := s.service.api.OpenAPI().Paths["/v1/admissions"]; item != nil {
		t.Error("the document names a path that does not exist")
	}
	for _, body := range []string{`{"stock":5,"admission":"token"}`, `{"admission":"token"}`} {
		p := s.refused(invalid, "PUT", "/v1/stocks/shirt", body)
		if len(p.Errors) != 1 || p.Errors[0].Field != "admission" || !strings.Contains(p.Errors[0].Message, "METERED_COMMANDS_ENABLED") {
			t.Errorf("%s: the fields are %v, want admission, and the setting to turn on", body, p.Errors)
		}
	}
	if n := s.count(`SELECT count(*) FROM inventory_stocks`); n != 0 {
		t.Error("a refused stock was made")
	}
	s.stock("shirt", `{"stock":5,"admission":"open"}`)
	_, err := s.db.Exec(t.Context(), `UPDATE inventory_stocks SET admission = 'token'`) // written while metered commands were on
	s.must(err)
	if got := s.call(200, "GET", "/v1/stocks/shirt", "").text(t, "admission"); got != "token" {
		t.Errorf("the admission is %s", got)
	}
	s.stock("shirt", `{"stock":6}`)
	for _, headers := range [][]string{{admissionHeader, "hft_x", customerHeader, "ann"}, {}} {
		r := s.call(202, "POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`, headers...)
		if r.header.Get(policyHeader) != "" || r.header.Get(limitHeader) != "" {
			t.Errorf("the answer shows rates: %v", r.header)
		}
	}
}

// TestStockAdmission sets the admission of a stock, which every answer of the
// stock shows.
func TestStockAdmission(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{}, ratelimit.Rate{})
	for _, step := range []struct{ body, want string }{
		{`{"stock":5}`, "open"},
		{`{"admission":"token"}`, "token"},
		{`{"stock":6}`, "token"},
		{`{"admission":"open","stock":7}`, "open"},
		{`{"admission":"token","tracked":false}`, "token"},
	} {
		if got := s.call(200, "PUT", "/v1/stocks/shirt", step.body).text(t, "admission"); got != step.want {
			t.Errorf("%s: the admission is %s, want %s", step.body, got, step.want)
		}
	}
	if diff := cmp.Diff([]string{"shirt 7 token"}, s.rows(`SELECT concat_ws(' ', variant_id, stock, admission) FROM inventory_stocks`)); diff != "" {
		t.Error(diff)
	}
	var page struct{ Items []stockJSON }
	s.call(200, "GET", "/v1/stocks", "").decode(t, &page)
	for name, got := range map[string]string{
		"read": s.call(200, "GET", "/v1/stocks/shirt", "").text(t, "admission"), "listed": page.Items[0].Admission,
		"adjusted": s.call(200, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`).text(t, "admission"),
	} {
		if got != "token" {
			t.Errorf("%s: the admission is %s, want token", name, got)
		}
	}
	for _, body := range []string{`{"admission":"closed"}`, `{"admission":""}`, `{"admission":null}`, `{"admission":true}`} {
		if p := s.refused(invalid, "PUT", "/v1/stocks/shirt", body); len(p.Errors) != 1 || p.Errors[0].Field != "admission" {
			t.Errorf("%s: the fields are %v", body, p.Errors)
		}
	}
}

// TestMint mints tokens for one variant and for any. Only their hashes are
// stored.
func TestMint(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{}, ratelimit.Rate{})
	s.stock("shirt", `{"stock":5}`)
	s.mint(`{"subject":"customer-1","variant_id":"shirt"}`)
	s.mint(`{"subject":"customer-2","ttl_seconds":86400}`)
	s.mint(`{"subject":"` + strings.Repeat("ü", 128) + `","ttl_seconds":1}`)
	const keptSQL = `
		SELECT concat_ws(' ', purpose, left(subject, 10), EXTRACT(EPOCH FROM expires_at - created_at)::integer, consumed_at IS NULL)
		FROM expiring_tokens
		WHERE tenant_id = $1
		ORDER BY created_at`
	want := []string{"admission:shirt customer-1 600 t", "admission customer-2 86400 t", "admission " + strings.Repeat("ü", 10) + " 1 t"}
	if diff := cmp.Diff(want, s.rows(keptSQL, s.tenant.TenantID)); diff != "" {
		t.Errorf("the tokens (-want +got):\n%s", diff)
	}
	before := s.written()
	for _, tc := range []struct{ body, field string }{
		{`{}`, "subject"}, {`{"subject":""}`, "subject"}, {`{"subject":null}`, "subject"}, {`{"subject":7}`, "subject"},
		{`{"subject":"a\u0000"}`, "subject"}, {`{"subject":"` + strings.Repeat("x", 129) + `"}`, "subject"},
		{`{"subject":"s","variant_id":""}`, "variant_id"}, {`{"subject":"s","variant_id":null}`, "variant_id"},
		{`{"subject":"s","ttl_seconds":0}`, "ttl_seconds"}, {`{"subject":"s","ttl_seconds":86401}`, "ttl_seconds"},
		{`{"subject":"s","ttl_seconds":1.5}`, "ttl_seconds"}, {`{"subject":"s","ttl_seconds":null}`, "ttl_seconds"},
		{`{"subject":"s","purpose":"x"}`, "purpose"},
	} {
		if p := s.refused(invalid, "POST", "/v1/admissions", tc.body); len(p.Errors) != 1 || p.Errors[0].Field != tc.field {
			t.Errorf("%s: the fields are %v, want %s", tc.body, p.Errors, tc.field)
		}
	}
	s.refused(notFound, "POST", "/v1/admissions", `{"subject":"s","variant_id":"shoe"}`, keyHeader, "k")
	_, neighbour := s.newTenant("neighbour")
	s.refused(notFound, "POST", "/v1/admissions", `{"subject":"s","variant_id":"shirt"}`, "Authorization", "Bearer "+neighbour)
	if n := s.count(`SELECT count(*) FROM expiring_tokens`); n != int64(len(want)) || s.written() != before {
		t.Errorf("refused calls minted: there are %d tokens and %d more rows", n, s.written()-before)
	}
	r := s.call(200, "POST", "/v1/admissions", `{"subject":"s","variant_id":"shirt"}`)
	r.body = []byte(strings.Replace(string(r.body), r.text(t, "token"), "hft_token", 1))
	golden(t, "mint_admission", r)
}

// TestMintAgain mints once per idempotency key. The second response has no
// token, because it is not stored.
func TestMintAgain(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{}, ratelimit.Rate{})
	s.stock("shirt", `{"stock":5}`)
	const body = `{"subject":"customer-1","variant_id":"shirt"}`
	first := s.call(200, "POST", "/v1/admissions", body, keyHeader, "k")
	again := s.call(200, "POST", "/v1/admissions", body, keyHeader, "k")
	golden(t, "mint_admission_replayed", again)
	told, repeated := first.object(t), again.object(t)
	token, _ := told["token"].(string)
	if !tokens.WellFormed(token) || first.header.Get(replayedHeader) != "" || again.header.Get(replayedHeader) != "true" {
		t.Errorf("the first answer has a token of %d characters; headers %v, then %v", len(token), first.header, again.header)
	}
	told["token"] = nil
	if diff := cmp.Diff(told, repeated); diff != "" {
		t.Errorf("the repetition differs in more than the token (-first +again):\n%s", diff)
	}
	s.refused(keyReused, "POST", "/v1/admissions", `{"subject":"customer-2","variant_id":"shirt"}`, keyHeader, "k")
	if n := s.count(`SELECT count(*) FROM expiring_tokens`); n != 1 {
		t.Errorf("%d tokens were minted, want 1", n)
	}
	stored := s.rows(`SELECT convert_from(body, 'UTF8') FROM idempotency_keys`)
	if len(stored) != 1 || !json.Valid([]byte(stored[0])) || strings.Contains(stored[0], "hft_") {
		t.Errorf("%d answers are stored, or one has the token", len(stored))
	}
}

// TestReadyWithMetering checks that readiness requires the tables of metered
// commands too.
func TestReadyWithMetering(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s := openShop(t, db, holdfast.Config{Intake: admission.IntakeConfig{Metered: true}})
	s.refused(notReady, "GET", "/readyz", "")
	s.must(migrations.Up(t.Context(), db, &migrations.Config{Metered: true}))
	s.call(200, "GET", "/readyz", "")
}

// TestNotReadyWithoutMetering checks that a service without metered commands
// is not ready once a variant requires tokens, which another service with
// metered commands has set. Load balancers then send it no calls.
func TestNotReadyWithoutMetering(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	s.call(200, "GET", "/readyz", "")
	require := func(admission string) {
		t.Helper()
		_, err := s.db.Exec(t.Context(), `UPDATE inventory_stocks SET admission = $1`, admission)
		s.must(err)
	}
	require(inventory.AdmissionToken)
	s.refused(notReady, "GET", "/readyz", "")
	require(inventory.AdmissionOpen)
	s.call(200, "GET", "/readyz", "")
}
