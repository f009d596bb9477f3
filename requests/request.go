package requests

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
)

// Status is the state of a request. Done and Failed are final.
type Status string

// The four statuses.
const (
	Queued     Status = "queued"
	Processing Status = "processing"
	Done       Status = "done"
	Failed     Status = "failed"
)

// Finished reports whether the status is final.
func (s Status) Finished() bool { return s == Done || s == Failed }

// Kind is what a request asks for.
type Kind string

// Add asks for more units of a variant. Set asks for a quantity that replaces
// the units that the cart holds.
const (
	Add Kind = "add"
	Set Kind = "set"
)

// Reason is the reason why a request failed.
type Reason string

// The reasons.
const (
	OutOfStock     Reason = Reason(inventory.OutOfStock)
	UnknownVariant Reason = Reason(inventory.UnknownVariant)
	LimitExceeded  Reason = Reason(inventory.LimitExceeded)
	ExpiredInQueue Reason = Reason(inventory.ExpiredInQueue)
	Cancelled      Reason = "cancelled"
	InternalError  Reason = "internal_error"
)

// Units is which units of a block a request asks for. One of the fields is set.
type Units struct {
	// IDs are the units, as many as the request's quantity.
	IDs []string `json:"unit_ids,omitempty"`
	// Any asks for any units, as many as the request's quantity.
	Any bool `json:"any_of,omitempty"`
	// Contiguous asks for any neighbours: units with consecutive positions.
	Contiguous bool `json:"contiguous,omitempty"`
}

// text is the value as it is stored.
func (u *Units) text() string {
	b, err := json.Marshal(u)
	if err != nil { // strings and a boolean always marshal
		panic(err)
	}
	return string(b)
}

// Request is a row of the status table. Times are the database's.
type Request struct {
	TenantID, RequestID uuid.UUID
	// Sequence is the order of admission.
	Sequence          int64
	Kind              Kind
	CartID, VariantID string
	Quantity          int32
	// Units is which units of a block the request asks for; nil for a request
	// for a variant, which may be a block too: then any units will do.
	Units         *Units
	Lane          lanes.Lane
	Slot          int16
	Status        Status
	Reason        Reason
	ActorID       string
	CorrelationID string
	// Attempts and ClaimEpoch count the claims of the isolated retry. They are
	// 0 for a request that never failed on its own.
	Attempts   int16
	ClaimEpoch int32
	RetryOf    *uuid.UUID
	// TraceParent is the W3C trace context of the call that was admitted, ""
	// unless it was sampled.
	TraceParent string
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// columns is the one column list of a Request, read by scan.
const columns = `r.tenant_id, r.request_id, r.sequence, r.kind, r.cart_id, r.variant_id, r.quantity, r.lane, r.slot,
       r.status, coalesce(r.reason, ''), coalesce(r.actor_id, ''), coalesce(r.correlation_id, r.request_id::text),
       r.attempts, r.claim_epoch, r.retry_of, coalesce(r.trace_parent, ''), r.created_at, r.updated_at, r.units`

// scan reads a row of columns, and the columns that the query adds. It scans
// ids as [16]byte: a uuid.UUID scans itself from text, which takes a third of a
// claim's time.
func scan(row pgx.CollectableRow, added ...any) (r Request, err error) {
	var retryOf *[16]byte
	err = row.Scan(append([]any{
		(*[16]byte)(&r.TenantID), (*[16]byte)(&r.RequestID), &r.Sequence, (*string)(&r.Kind), &r.CartID, &r.VariantID,
		&r.Quantity, (*string)(&r.Lane), &r.Slot, (*string)(&r.Status), (*string)(&r.Reason), &r.ActorID, &r.CorrelationID,
		&r.Attempts, &r.ClaimEpoch, &retryOf, &r.TraceParent, &r.CreatedAt, &r.UpdatedAt,
		&r.Units,
	}, added...)...)
	r.RetryOf = (*uuid.UUID)(retryOf)
	return r, err
}

func toRequest(row pgx.CollectableRow) (Request, error) { return scan(row) }

// UnitIDs are the units that the request names, empty if it names none.
func (r *Request) UnitIDs() []string {
	if r.Units == nil {
		return nil
	}
	return r.Units.IDs
}

// Ref names a request.
type Ref struct{ TenantID, RequestID uuid.UUID }

// Ref is the request's name.
func (r *Request) Ref() Ref { return Ref{r.TenantID, r.RequestID} }

var (
	// ErrNotFound means that the tenant has no such request.
	ErrNotFound = errors.New("request: not found")
	// ErrKeyReused means that the idempotency key belongs to a call with
	// another method, path or body.
	ErrKeyReused = errors.New("request: idempotency key was used for another call")
	// ErrIsolation means that a verb was called in a transaction at REPEATABLE
	// READ or SERIALIZABLE, whose snapshot may be older than what the verb must
	// see. Postgres has aborted the transaction. The packages inventory, lanes,
	// queues and hot return the same value.
	ErrIsolation = pg.ErrIsolation
	// ErrRequestsPending means that the cart has requests that are not decided
	// yet.
	ErrRequestsPending = errors.New("request: the cart has undecided requests")
)
