package requests

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// NotFailedError means that a request cannot be retried, because it is not
// failed.
type NotFailedError struct {
	// Status is what the request is instead.
	Status Status
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

// Retry returns the submission that asks for the same as a failed request
// again. It has the tenant, what is asked for, and RetryOf; the caller sets the
// rest. Its admission fails with a *RetriedError if the request was retried
// before.
//
// Errors: ErrNotFound, *NotFailedError.
func Retry(ctx context.Context, db Querier, tenantID, requestID uuid.UUID) (Submission, error) {
	r, err := getRow(ctx, db, tenantID, requestID)
	if err != nil {
		return Submission{}, err
	}
	if r.Status != Failed {
		return Submission{}, &NotFailedError{r.Status}
	}
	return Submission{
		TenantID: tenantID, Kind: r.Kind, CartID: r.CartID, VariantID: r.VariantID, Quantity: r.Quantity, Units: r.Units,
		RetryOf: requestID,
	}, nil
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
