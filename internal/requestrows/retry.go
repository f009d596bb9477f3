package requestrows

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/requests"
)

// NotFailedError means that a request cannot be retried, because it is not
// failed.
type NotFailedError struct {
	// Status is what the request is instead.
	Status requests.Status
}

func (e *NotFailedError) Error() string {
	return "request: only a failed request can be retried, this one is " + string(e.Status)
}

// RetriedError means that a failed request has been retried already. If that
// retry fails, it can be retried itself.
type RetriedError struct {
	// RetriedBy is the request that retries it.
	RetriedBy uuid.UUID
}

func (e *RetriedError) Error() string {
	return "request: it is retried by request " + e.RetriedBy.String()
}

var (
	// ErrRetryCancelled means that a request cannot be retried, because its
	// buyer cancelled it.
	ErrRetryCancelled = errors.New("request: its buyer cancelled it")
	// ErrRetrySuperseded means that a request for a quantity of a cart cannot be
	// retried, because a later request of the cart is for the same variant.
	ErrRetrySuperseded = errors.New("request: a later request of the cart is for the same variant")
)

// laterMax is how many later requests of a cart are read to find one for the
// same variant.
const laterMax = 1000

// supersededSQL reads the cart's next requests by reservation_requests_cart_idx.
const supersededSQL = `
SELECT EXISTS (
    SELECT
    FROM (
        SELECT r.variant_id
        FROM reservation_requests r
        WHERE same_holder(r.tenant_id, r.cart_id, $1, $2) AND r.sequence > $3
        ORDER BY r.sequence
        LIMIT $5
    ) AS later
    WHERE later.variant_id = $4
)`

// Retry returns the submission that asks for the same as a failed request
// again. It has the tenant, what is asked for, and RetryOf; the caller sets the
// rest. A retry must not undo what the buyer decided later: a cancelled request
// is not retried, and neither is one of kind Set if one of the cart's next
// 1,000 requests is for the same variant.
//
// If the request was retried before, Retry returns the submission and a
// *RetriedError. The admission of the submission returns the first retry if it
// has the same idempotency key, and fails with the same error otherwise.
//
// Errors: ErrNotFound, *NotFailedError, *RetriedError, ErrRetryCancelled,
// ErrRetrySuperseded.
func Retry(ctx context.Context, db Querier, tenantID, requestID uuid.UUID) (Submission, error) {
	r, err := getRow(ctx, db, tenantID, requestID)
	if err != nil {
		return Submission{}, err
	}
	if r.Status != requests.Failed {
		return Submission{}, &NotFailedError{r.Status}
	}
	if r.Reason == requests.Cancelled {
		return Submission{}, ErrRetryCancelled
	}
	again := Submission{
		TenantID: tenantID, Kind: r.Kind, CartID: r.CartID, VariantID: r.VariantID, Quantity: r.Quantity, Units: r.Units, Lines: r.Lines, CustomerID: r.CustomerID,
		RetryOf: requestID,
	}
	retries, err := Retries(ctx, db, []Ref{RefOf(&r)})
	if err != nil {
		return Submission{}, err
	}
	if by, exists := retries[RefOf(&r)]; exists {
		return again, &RetriedError{by}
	}
	if r.Kind != requests.Set {
		return again, nil
	}
	rows, _ := db.Query(ctx, supersededSQL, tenantID, r.CartID, r.Sequence, r.VariantID, laterMax)
	superseded, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	if err != nil {
		return Submission{}, fmt.Errorf("read the requests after %s: %w", requestID, err)
	}
	if superseded {
		return Submission{}, ErrRetrySuperseded
	}
	return again, nil
}

// lockRetriedSQL locks the requests that a group retries, so that the audit rows
// of one request have its transitions in their order. Every admission locks
// them in the order of their names.
const lockRetriedSQL = `
SELECT r.tenant_id, r.request_id, r.status, coalesce(r.reason, '') AS reason
FROM reservation_requests r
JOIN unnest($1::uuid[], $2::uuid[]) AS failed (tenant_id, request_id) USING (tenant_id, request_id)
ORDER BY r.tenant_id, r.request_id
FOR NO KEY UPDATE OF r`

// retriedState is the state of a request that a group retries.
type retriedState struct {
	Status requests.Status
	Reason requests.Reason
}

// queueLockRetried adds to b the statement that locks and reads the requests
// which the group retries, if there are any.
func (n *insertGroup) queueLockRetried(b *pgx.Batch) {
	var tenants, ids [][16]byte
	for i := range n.Group {
		s := &n.Group[i]
		if s.RetryOf != uuid.Nil {
			tenants, ids = append(tenants, s.TenantID), append(ids, s.RetryOf)
		}
	}
	if len(ids) == 0 {
		return
	}
	b.Queue(lockRetriedSQL, tenants, ids).Query(func(rows pgx.Rows) error {
		n.retried = make(map[Ref]retriedState)
		var ref Ref
		var state retriedState
		_, err := pgx.ForEachRow(rows, []any{&ref.TenantID, &ref.RequestID, (*string)(&state.Status), (*string)(&state.Reason)}, func() error {
			n.retried[ref] = state
			return nil
		})
		return err
	})
}

// recordRetriesTx records the retries that were inserted and not withdrawn.
func (n *insertGroup) recordRetriesTx(ctx context.Context, tx pgx.Tx) error {
	return audit.WriteTx(ctx, tx, n.retryEntries(n.inserted))
}

// retryEntries returns an audit row (request.retried) for each retry among the
// requests, in the name of the caller that made it. The target is the failed
// request. A retry of a request that does not exist has no row.
func (n *insertGroup) retryEntries(inserted []requests.Request) (entries []audit.Entry) {
	for i := range inserted {
		r := &inserted[i]
		if r.RetryOf == nil {
			continue
		}
		if state, exists := n.retried[Ref{r.TenantID, *r.RetryOf}]; exists {
			entries = append(entries, retried(r, state))
		}
	}
	return entries
}

// retried is the audit entry of the request that r retries.
func retried(r *requests.Request, of retriedState) audit.Entry {
	before := auditState{Status: of.Status, Reason: of.Reason, CartID: r.CartID, VariantID: r.VariantID, Quantity: r.Quantity}
	after := before
	after.RetriedBy = &r.RequestID
	return audit.Entry{
		TenantID: r.TenantID, TargetID: *r.RetryOf, Action: "request.retried", Origin: OriginOf(r),
		Before: toJSON(before), After: toJSON(after),
	}
}

const retriesSQL = `
SELECT r.tenant_id, r.retry_of, r.request_id
FROM unnest($1::uuid[], $2::uuid[]) AS failed (tenant_id, retry_of)
JOIN reservation_requests r USING (tenant_id, retry_of)`

// Retries returns the requests that retry the given ones, by the names of
// these.
func Retries(ctx context.Context, db Querier, failed []Ref) (map[Ref]uuid.UUID, error) {
	tenants, ids := make([][16]byte, len(failed)), make([][16]byte, len(failed))
	for i, ref := range failed {
		tenants[i], ids[i] = ref.TenantID, ref.RequestID
	}
	rows, err := db.Query(ctx, retriesSQL, tenants, ids)
	if err != nil {
		return nil, fmt.Errorf("look up the retries of %d requests: %w", len(failed), err)
	}
	type retry struct{ TenantID, RetryOf, RequestID uuid.UUID }
	found, err := pgx.CollectRows(rows, pgx.RowToStructByName[retry])
	if err != nil {
		return nil, fmt.Errorf("look up the retries of %d requests: %w", len(failed), err)
	}
	retries := make(map[Ref]uuid.UUID, len(found))
	for _, r := range found {
		retries[Ref{r.TenantID, r.RetryOf}] = r.RequestID
	}
	return retries, nil
}

// addRetried adds a *RetriedError for each submission that is not in found and
// retries a request that another one retries.
func addRetried(ctx context.Context, db Querier, group []Submission, found map[Ref]Result) error {
	var failed []Ref
	for i := range group {
		s := &group[i]
		_, known := found[s.Ref()]
		if s.RetryOf != uuid.Nil && !known {
			failed = append(failed, Ref{s.TenantID, s.RetryOf})
		}
	}
	if len(failed) == 0 {
		return nil
	}
	retries, err := Retries(ctx, db, failed)
	if err != nil {
		return err
	}
	for i := range group {
		s := &group[i]
		_, known := found[s.Ref()]
		by, retried := retries[Ref{s.TenantID, s.RetryOf}]
		if retried && !known {
			found[s.Ref()] = Result{Err: &RetriedError{by}}
		}
	}
	return nil
}
