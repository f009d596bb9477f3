package requestrows

import (
	"encoding/json"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/requests"
)

// columns is the one column list of a Request, read by scan.
const columns = `r.tenant_id, r.request_id, r.sequence, r.kind, r.cart_id, r.variant_id, r.quantity, r.lane, r.slot,
       r.status, coalesce(r.reason, ''), coalesce(r.actor_id, ''), coalesce(r.correlation_id, r.request_id::text),
       r.attempts, r.claim_epoch, r.retry_of, coalesce(r.trace_parent, ''), r.created_at, r.updated_at, r.units,
       r.lines, r.parent_id, coalesce(r.line, 0), r.open_parts, coalesce(r.customer_id, ''), coalesce(r.kit_id, '')`

// scan reads a row of columns, and the columns that the query adds. It scans
// ids as [16]byte: a uuid.UUID scans itself from text, which takes a third of a
// claim's time.
func scan(row pgx.CollectableRow, added ...any) (r requests.Request, err error) {
	var retryOf, parent *[16]byte
	err = row.Scan(append([]any{
		(*[16]byte)(&r.TenantID), (*[16]byte)(&r.RequestID), &r.Sequence, (*string)(&r.Kind), &r.CartID, &r.VariantID,
		&r.Quantity, (*string)(&r.Lane), &r.Slot, (*string)(&r.Status), (*string)(&r.Reason), &r.ActorID, &r.CorrelationID,
		&r.Attempts, &r.ClaimEpoch, &retryOf, &r.TraceParent, &r.CreatedAt, &r.UpdatedAt,
		&r.Units, &r.Lines, &parent, &r.Line, &r.OpenParts, &r.CustomerID, &r.KitID,
	}, added...)...)
	r.RetryOf, r.ParentID = (*uuid.UUID)(retryOf), (*uuid.UUID)(parent)
	return r, err
}

func toRequest(row pgx.CollectableRow) (requests.Request, error) { return scan(row) }

// Ref names a request.
type Ref struct{ TenantID, RequestID uuid.UUID }

// RefOf is the name of r.
func RefOf(r *requests.Request) Ref { return Ref{r.TenantID, r.RequestID} }

var (
	// ErrNotFound means that the tenant has no such request.
	ErrNotFound = errors.New("request: not found")
	// ErrKeyReused means that the idempotency key belongs to a call with
	// another method, path or body.
	ErrKeyReused = errors.New("request: idempotency key was used for another call")
	// ErrRequestsPending means that the cart has requests that are not decided
	// yet.
	ErrRequestsPending = errors.New("request: the cart has undecided requests")
)

// toJSON is v as it is stored. v has only strings, numbers, booleans and
// ids, which always marshal.
func toJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
