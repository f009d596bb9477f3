package requestrows

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/unitrows"
	"github.com/holdfast/holdfast/requests"
)

// Submission is what a caller asks for.
type Submission struct {
	TenantID uuid.UUID
	// RequestID names the request. If it is zero, Submit makes a UUIDv7.
	RequestID uuid.UUID
	// Kind is Add when empty.
	Kind              requests.Kind
	CartID, VariantID string
	// Quantity is in units, 1 to inventory.MaxQuantity.
	Quantity int32
	// Units is which units of a block are wanted, or from which allotment; nil for
	// units of a variant, or any units of a block. Units.IDs are Quantity distinct unit ids, at most
	// unitrows.UnitsMax.
	Units *requests.Units
	// Lines are those of a request of kind Several, which has no other variant,
	// quantity or units.
	Lines *requests.Lines
	// ParentID, Line and KitID are those of a part of such a request.
	ParentID uuid.UUID
	Line     int16
	KitID    string
	// IdempotencyKey has 1–255 characters. If it is empty, every call is a new
	// one. Fingerprint is the hash of the verb and its arguments. It
	// distinguishes a retry from the reuse of a key for another call.
	IdempotencyKey string
	Fingerprint    [32]byte
	// CorrelationID is recorded in the audit rows; if empty, it is the
	// request's id. ActorID names the caller there.
	CorrelationID, ActorID string
	// CustomerID is whose limits apply; empty: the cart is its own customer.
	CustomerID string
	// RetryOf names the failed request that an operator tries again: see Retry.
	// Only one request retries it.
	RetryOf uuid.UUID
	// Waits means that the caller waits for the outcome. The workers are woken
	// at once, even where larger groups would cost less.
	Waits bool

	traceParent string // of the call, if it is sampled
}

// Ref is the request's name.
func (s *Submission) Ref() Ref { return Ref{s.TenantID, s.RequestID} }

// Key is the submission's idempotency key.
func (s *Submission) Key() Key { return Key{s.TenantID, s.IdempotencyKey} }

// KeyMax is the maximum length of an idempotency key or a correlation id, in
// characters.
const KeyMax = 255

// Validate returns the first invalid field of the submission as an
// *inventory.InvalidError. It runs before admission, so one caller's bad input
// can't fail the group of other callers.
func (s *Submission) Validate() error {
	if err := inventory.ValidateID("cart_id", s.CartID); err != nil {
		return err
	}
	if err := s.validateWanted(); err != nil {
		return err
	}
	if !slices.Contains([]requests.Kind{"", requests.Add, requests.Set, requests.Wait, requests.Several}, s.Kind) {
		return &inventory.InvalidError{Field: "kind", Message: "must be add, set, wait or lines"}
	}
	if err := ValidateToken("idempotency_key", s.IdempotencyKey); err != nil {
		return err
	}
	if err := ValidateToken("correlation_id", s.CorrelationID); err != nil {
		return err
	}
	if s.CustomerID != "" {
		if err := invalid.Check("customer_id", s.CustomerID, inventory.MaxIDLength); err != nil {
			return err
		}
	}
	return ValidateToken("actor_id", s.ActorID)
}

// validateWanted validates what is asked for.
func (s *Submission) validateWanted() error {
	if s.Kind == requests.Several {
		return validateLines(s.Lines)
	}
	if err := inventory.ValidateID("variant_id", s.VariantID); err != nil {
		return err
	}
	if s.Quantity < 1 || s.Quantity > inventory.MaxQuantity {
		return &inventory.InvalidError{Field: "quantity", Message: fmt.Sprintf("must be between 1 and %d", inventory.MaxQuantity)}
	}
	return s.validateUnits()
}

func (s *Submission) validateUnits() error {
	if s.Units == nil {
		return nil
	}
	if s.Units.Allotment != "" {
		if s.Kind == requests.Wait {
			return &inventory.InvalidError{Field: "wait_for_stock", Message: "must be left out with allotment"}
		}
		return validateAllotment("allotment", s.Units)
	}
	if s.Kind == requests.Set {
		return &inventory.InvalidError{Field: "units", Message: "cannot be changed: remove the item and add it again"}
	}
	if s.Kind == requests.Wait && !s.Units.Any {
		return &inventory.InvalidError{Field: "wait_for_stock", Message: "is for units of a variant, or any units of a block"}
	}
	if len(s.Units.IDs) > 0 && (s.Units.Any || s.Units.Contiguous) {
		return &inventory.InvalidError{Field: "units", Message: "must either be named or any of the block"}
	}
	if s.Quantity > unitrows.UnitsMax {
		return &inventory.InvalidError{Field: "any_of", Message: fmt.Sprintf("must be between 1 and %d", unitrows.UnitsMax)}
	}
	return inventory.ValidateUnits(s.Units.IDs, int(s.Quantity))
}

// validateAllotment validates units of an allotment.
func validateAllotment(field string, units *requests.Units) error {
	if len(units.IDs) > 0 || units.Any || units.Contiguous {
		return &inventory.InvalidError{Field: field, Message: "must be left out for units of a block"}
	}
	return inventory.ValidateID(field, units.Allotment)
}

// severalVariants is the variant of a request of several lines. No variant has
// this id.
const severalVariants = "/"

// Prepare validates the submission, makes an id for the request if it has none,
// and records the trace of ctx. It returns the error of Validate.
func (s *Submission) Prepare(ctx context.Context) error {
	s.traceParent = telemetry.TraceParent(ctx)
	if s.RequestID == uuid.Nil {
		s.RequestID = NewID()
	}
	if err := s.Validate(); err != nil {
		return err
	}
	if s.Lines != nil {
		s.VariantID, s.Quantity = severalVariants, unitsOf(s.Lines)
	}
	return nil
}

// request returns r with the fields that the submission sets.
func (s *Submission) request(r requests.Request) requests.Request {
	r.TenantID, r.RequestID, r.Kind = s.TenantID, s.RequestID, cmp.Or(s.Kind, requests.Add)
	r.CartID, r.VariantID, r.Quantity, r.Units, r.Lines, r.Line = s.CartID, s.VariantID, s.Quantity, s.Units, s.Lines, s.Line
	r.KitID = s.KitID
	r.ActorID, r.CorrelationID, r.TraceParent = s.ActorID, s.CorrelationID, s.traceParent
	r.CustomerID = s.CustomerID
	if r.CorrelationID == "" {
		r.CorrelationID = s.RequestID.String()
	}
	if s.RetryOf != uuid.Nil {
		r.RetryOf = new(s.RetryOf)
	}
	if s.ParentID != uuid.Nil {
		r.ParentID = new(s.ParentID)
	}
	return r
}

// ValidateToken checks an optional text that a caller chose. It must have at
// most KeyMax characters of UTF-8 and no control characters.
func ValidateToken(field, s string) error {
	if s == "" {
		return nil
	}
	return invalid.Check(field, s, KeyMax)
}

// NewID makes a request's id.
func NewID() uuid.UUID { return uuid.Must(uuid.NewV7()) }

// lookUpSQL reads the rows with which an insert conflicted: the row of an
// earlier attempt, or the first use of the key.
const lookUpSQL = `
SELECT ` + columns + `, r.idempotency_key, r.fingerprint
FROM reservation_requests r
JOIN unnest($1::uuid[], $2::uuid[]) AS own (tenant_id, request_id) USING (tenant_id, request_id)
UNION ALL
SELECT ` + columns + `, r.idempotency_key, r.fingerprint
FROM reservation_requests r
JOIN unnest($1::uuid[], $3::text[]) AS used (tenant_id, idempotency_key) USING (tenant_id, idempotency_key)`

// LookUp returns the results of the submissions that were inserted before, by
// their names. A result is the request under the submission's id or key, or
// ErrKeyReused. The other submissions are not in the map.
func LookUp(ctx context.Context, db Querier, group []Submission) (map[Ref]Result, error) {
	tenants, ids, keys := namesOf(group)
	rows, err := db.Query(ctx, lookUpSQL, tenants, ids, keys)
	if err != nil {
		return nil, err
	}
	type winner struct {
		requests.Request
		Key         *string
		Fingerprint []byte
	}
	winners, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w winner, err error) {
		w.Request, err = scan(row, &w.Key, &w.Fingerprint)
		return w, err
	})
	if err != nil {
		return nil, err
	}
	found := make(map[Ref]Result, len(group))
	for _, s := range group {
		for _, w := range winners {
			switch {
			case w.TenantID != s.TenantID:
			case w.RequestID == s.RequestID:
				found[s.Ref()] = Result{View: requests.View{Request: w.Request}}
			case w.Key == nil || *w.Key != s.IdempotencyKey:
			case slices.Equal(w.Fingerprint, s.Fingerprint[:]):
				found[s.Ref()] = Result{View: requests.View{Request: w.Request}}
			default:
				found[s.Ref()] = Result{Err: ErrKeyReused}
			}
		}
	}
	return found, addRetried(ctx, db, group, found)
}

// namesOf returns the ids and the keys of the submissions, as columns.
func namesOf(group []Submission) (tenants, ids [][16]byte, keys []string) {
	tenants, ids, keys = make([][16]byte, len(group)), make([][16]byte, len(group)), make([]string, len(group))
	for i := range group {
		tenants[i], ids[i], keys[i] = group[i].TenantID, group[i].RequestID, group[i].IdempotencyKey
	}
	return tenants, ids, keys
}
