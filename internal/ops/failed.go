package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/requests"
)

// OverviewFailed is a failed request. RetriedBy is nil for none; there is at
// most one.
type OverviewFailed struct {
	RequestID uuid.UUID     `json:"request_id" format:"uuid"`
	Kind      requests.Kind `json:"kind" enum:"add,set,wait,lines" doc:"add asks for more units, wait too but waits in line for them, set asks for a quantity in place of the present one, lines for several lines."`
	CartID    string        `json:"cart_id"`
	VariantID string        `json:"variant_id" minLength:"1" maxLength:"128" doc:"The variant's id; / for several lines."`
	Quantity  int32         `json:"quantity"`
	Reason    string        `json:"reason"`
	FailedAt  time.Time     `json:"failed_at"`
	RetriedBy *uuid.UUID    `json:"retried_by" format:"uuid" nullable:"true" doc:"The request that retries it; null for none."`
}

// FailedScanMax is how many of a tenant's newest requests are read at most to
// find failed ones. No index lists them: deciding a request would have to write
// to it.
const FailedScanMax = 5000

// latestFailedSQL reads the newest requests by their ids, which are made in the
// order of time. A sale has many rejections, which must not hide the failures
// that an operator can act on.
const latestFailedSQL = `
SELECT r.request_id, r.kind, r.cart_id, r.variant_id, r.quantity, r.reason, r.updated_at,
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
WHERE r.status = 'failed' AND r.parent_id IS NULL
ORDER BY r.reason IN ('internal_error', 'expired_in_queue') DESC, r.request_id DESC
LIMIT $3`

// failed returns up to limit failed requests among the tenant's newest
// FailedScanMax requests: first those with an internal error and those that
// expired in the queue, then the others, the newest of both first.
func (o *Reader) failed(ctx context.Context, tenantID uuid.UUID, limit int) ([]OverviewFailed, error) {
	failed, err := pg.ReadInOrder(ctx, o.db, pgx.RowToStructByPos[OverviewFailed], latestFailedSQL, tenantID, FailedScanMax, limit)
	if err != nil {
		return nil, fmt.Errorf("read the latest failed requests: %w", err)
	}
	for i := range failed {
		failed[i].FailedAt = failed[i].FailedAt.UTC()
	}
	return failed, nil
}
