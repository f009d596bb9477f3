package requests

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/plans"
)

// FailedRequest is a failed request, and its retry.
type FailedRequest struct {
	Request
	// RetriedBy is the request that retries this one; nil for none. There is at
	// most one.
	RetriedBy *uuid.UUID
}

// FailedScanMax is how many of a tenant's newest requests LatestFailed reads at
// most. No index lists the failed ones: deciding a request would have to write
// to it.
const FailedScanMax = 5000

// latestFailedSQL reads the newest requests by their ids, which are made in the
// order of time. A sale has many rejections, which must not hide the failures
// that an operator can act on.
const latestFailedSQL = `
SELECT ` + columns + `,
       (SELECT retry.request_id
        FROM reservation_requests retry
        WHERE retry.tenant_id = r.tenant_id AND retry.retry_of = r.request_id)
FROM (
    SELECT newest.*
    FROM reservation_requests newest
    WHERE newest.tenant_id = $1
    ORDER BY newest.request_id DESC
    LIMIT $2
) r
WHERE r.status = 'failed'
ORDER BY r.reason IN ('internal_error', 'expired_in_queue') DESC, r.request_id DESC
LIMIT $3`

// LatestFailed returns up to limit failed requests among the tenant's newest
// FailedScanMax requests: first those with an internal error and those that
// expired in the queue, then the others, the newest of both first.
func LatestFailed(ctx context.Context, db *pgxpool.Pool, tenantID uuid.UUID, limit int) ([]FailedRequest, error) {
	failed, err := plans.ReadInOrder(ctx, db, func(row pgx.CollectableRow) (f FailedRequest, err error) {
		f.Request, err = scan(row, &f.RetriedBy)
		return f, err
	}, latestFailedSQL, tenantID, FailedScanMax, limit)
	if err != nil {
		return nil, fmt.Errorf("read the latest failed requests: %w", err)
	}
	return failed, nil
}
