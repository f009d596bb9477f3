package requests

import (
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/inventory"
)

// Status is where a request stands. Done and Failed are final.
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

// Add asks for more units, Set for a quantity in place of what the cart holds of the variant.
const (
	Add Kind = "add"
	Set Kind = "set"
)

// Reason says why a request failed.
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

// The lanes.
const (
	Hot    = "hot"
	Normal = "normal"
)

// Request is a row of the status table. Times are the database's.
type Request struct {
	TenantID, RequestID uuid.UUID
	// Sequence is the order of admission.
	Sequence          int64
	Kind              Kind
	CartID, VariantID string
	Quantity          int32
	Lane              string
	Slot              int16
	Status            Status
	Reason            Reason
	ActorID           string
	CorrelationID     string
	// Attempts and ClaimEpoch count the claims of the careful way; 0 for a row that never failed by itself.
	Attempts   int16
	ClaimEpoch int32
	RetryOf    *uuid.UUID
	// TraceParent is the W3C trace context of the call that was admitted, "" unless it was sampled.
	TraceParent string
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// columns is the one column list of a Request, read by scan.
const columns = `r.tenant_id, r.request_id, r.sequence, r.kind, r.cart_id, r.variant_id, r.quantity, r.lane, r.slot,
       r.status, coalesce(r.reason, ''), coalesce(r.actor_id, ''), coalesce(r.correlation_id, r.request_id::text),
       r.attempts, r.claim_epoch, r.retry_of, coalesce(r.trace_parent, ''), r.created_at, r.updated_at`

// scan reads a row of columns, and what the query adds to them. It says in which form the ids arrive: a uuid.UUID scans
// itself by way of text, which costs a third of a claim.
func scan(row pgx.CollectableRow, added ...any) (r Request, err error) {
	var retryOf *[16]byte
	err = row.Scan(append([]any{
		(*[16]byte)(&r.TenantID), (*[16]byte)(&r.RequestID), &r.Sequence, (*string)(&r.Kind), &r.CartID, &r.VariantID,
		&r.Quantity, &r.Lane, &r.Slot, (*string)(&r.Status), (*string)(&r.Reason), &r.ActorID, &r.CorrelationID,
		&r.Attempts, &r.ClaimEpoch, &retryOf, &r.TraceParent, &r.CreatedAt, &r.UpdatedAt,
	}, added...)...)
	r.RetryOf = (*uuid.UUID)(retryOf)
	return r, err
}

// toAdmitted reads a row of admitSQL: what the database adds to a submission.
func toAdmitted(row pgx.CollectableRow) (r Request, err error) {
	err = row.Scan((*[16]byte)(&r.TenantID), (*[16]byte)(&r.RequestID), &r.Sequence, &r.Lane, &r.Slot, (*string)(&r.Status), &r.CreatedAt, &r.UpdatedAt)
	return r, err
}

func toRequest(row pgx.CollectableRow) (Request, error) { return scan(row) }

// Ref names a request.
type Ref struct{ TenantID, RequestID uuid.UUID }

// Ref is the request's name.
func (r *Request) Ref() Ref { return Ref{r.TenantID, r.RequestID} }

var (
	// ErrNotFound says that the tenant has no such request.
	ErrNotFound = errors.New("request: not found")
	// ErrKeyReused says that the idempotency key belongs to a call with another method, path or body.
	ErrKeyReused = errors.New("request: idempotency key was used for another call")
	// ErrOverloaded says that too much waits, for admission or for a decision, or that the process stops. Nothing was
	// accepted. See RefusedError.
	ErrOverloaded = errors.New("request: too much waits")
	// ErrOverLimit says the same of what waits of one tenant, while others may still come.
	ErrOverLimit = errors.New("request: too much of the tenant's waits")
	// ErrIsolation means that a verb was called in a transaction at REPEATABLE READ or SERIALIZABLE, whose snapshot may be
	// older than what the verb must see. Postgres has aborted the transaction. The packages inventory, queues and hot
	// return the same value.
	ErrIsolation = isolation.ErrLevel
	// ErrRequestsPending says that the cart has requests that are not decided yet.
	ErrRequestsPending = errors.New("request: the cart has undecided requests")
)
