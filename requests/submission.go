package requests

import (
	"cmp"
	"context"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
)

// Submission is what a caller asks for.
type Submission struct {
	TenantID uuid.UUID
	// RequestID names the request; the zero value lets Submit make a UUIDv7.
	RequestID uuid.UUID
	// Kind is Add when empty.
	Kind              Kind
	CartID, VariantID string
	// Quantity is in units, 1 to inventory.MaxQuantity.
	Quantity int32
	// IdempotencyKey is 1–255 characters; empty makes every call a new one. Fingerprint is the hash of the call's method,
	// path and body, by which a reused key is told from a retry.
	IdempotencyKey string
	Fingerprint    [32]byte
	// CorrelationID goes to the audit rows; the request's id when empty. ActorID names the caller there.
	CorrelationID, ActorID string
	// RetryOf names the failed request that an operator tries again.
	RetryOf uuid.UUID
	// Waits means that the caller waits for the outcome: the workers are woken at once, also where larger groups would cost
	// less.
	Waits bool

	traceParent string // of the call, if it is sampled
}

// KeyMax is the length of an idempotency key or a correlation id in characters, at most.
const KeyMax = 255

// Validate reports the first thing wrong with the submission as an *inventory.InvalidError. It comes before admission,
// so that one caller's bad input can't spoil the group of others.
func (s *Submission) Validate() error {
	if err := inventory.ValidateID("cart_id", s.CartID); err != nil {
		return err
	}
	if err := inventory.ValidateID("variant_id", s.VariantID); err != nil {
		return err
	}
	if s.Quantity < 1 || s.Quantity > inventory.MaxQuantity {
		return &inventory.InvalidError{Field: "quantity", Message: "must be between 1 and 1000000"}
	}
	if s.Kind != "" && s.Kind != Add && s.Kind != Set {
		return &inventory.InvalidError{Field: "kind", Message: "must be add or set"}
	}
	if err := ValidateToken("idempotency_key", s.IdempotencyKey); err != nil {
		return err
	}
	if err := ValidateToken("correlation_id", s.CorrelationID); err != nil {
		return err
	}
	return ValidateToken("actor_id", s.ActorID)
}

// prepare checks the submission, names the request and notes the trace that ctx is in.
func (s *Submission) prepare(ctx context.Context) error {
	s.traceParent = telemetry.TraceParent(ctx)
	if s.RequestID == uuid.Nil {
		s.RequestID = NewID()
	}
	return s.Validate()
}

// request is r with all that the submission says.
func (s *Submission) request(r Request) Request {
	r.TenantID, r.RequestID, r.Kind = s.TenantID, s.RequestID, cmp.Or(s.Kind, Add)
	r.CartID, r.VariantID, r.Quantity = s.CartID, s.VariantID, s.Quantity
	r.ActorID, r.CorrelationID, r.TraceParent = s.ActorID, s.CorrelationID, s.traceParent
	if r.CorrelationID == "" {
		r.CorrelationID = s.RequestID.String()
	}
	if s.RetryOf != uuid.Nil {
		r.RetryOf = new(s.RetryOf)
	}
	return r
}

// ValidateToken checks an optional text that a caller chose: at most KeyMax characters of UTF-8 without control
// characters.
func ValidateToken(field, s string) error {
	if !utf8.ValidString(s) || utf8.RuneCountInString(s) > KeyMax {
		return &inventory.InvalidError{Field: field, Message: "must be at most 255 characters of UTF-8"}
	}
	if strings.ContainsFunc(s, unicode.IsControl) {
		return &inventory.InvalidError{Field: field, Message: "must not contain control characters"}
	}
	return nil
}

// NewID makes a request's id.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// admitArgs are the columns of the group, in the order of admitSQL's parameters.
func admitArgs(group []Submission) []any {
	n := len(group)
	tenants, ids, retries := make([][16]byte, n), make([][16]byte, n), make([]*[16]byte, n)
	text := make([]string, 6*n)
	column := func(i int) []string { return text[i*n : (i+1)*n] }
	kinds, carts, variants, keys, correlations, actors := column(0), column(1), column(2), column(3), column(4), column(5)
	quantities, fingerprints := make([]int32, n), make([][]byte, n)
	var traces []*string // NULL unless a call is sampled, which costs the others nothing
	for i := range group {
		s := &group[i]
		tenants[i], ids[i], quantities[i] = s.TenantID, s.RequestID, s.Quantity
		carts[i], variants[i], keys[i] = s.CartID, s.VariantID, s.IdempotencyKey
		correlations[i], actors[i] = s.CorrelationID, s.ActorID
		kinds[i] = string(cmp.Or(s.Kind, Add))
		if s.IdempotencyKey != "" {
			fingerprints[i] = s.Fingerprint[:]
		}
		if s.RetryOf != uuid.Nil {
			retries[i] = (*[16]byte)(&s.RetryOf)
		}
		if s.traceParent != "" {
			if traces == nil {
				traces = make([]*string, n)
			}
			traces[i] = &s.traceParent
		}
	}
	return []any{tenants, ids, kinds, carts, variants, quantities, keys, fingerprints, correlations, actors, retries, traces}
}
