package normal

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// NewLane makes the normal lane. By default its batches have 500 requests and 2
// drains run concurrently. One more drain serves the stream of diverted
// tenants, so those do not take a drain from their neighbours.
func NewLane(db *pgxpool.Pool, log *slog.Logger, config queues.LaneConfig) (*queues.Lane, error) {
	return queues.NewLane(db, log, lanes.Normal, claimPolicy{}, config)
}

// claimPolicy is how the normal lane claims.
type claimPolicy struct{}

// lowestMarkSQL returns the lowest mark of the other streams in which a cart
// may have queued requests. It walks each of them from its mark. With EXISTS,
// the planner may read the whole lane once the table is analysed.
const lowestMarkSQL = `
SELECT min(other.low_water)
FROM ` + lanes.ParallelSlots + ` other
CROSS JOIN LATERAL (
    SELECT
    FROM reservation_requests r
    WHERE r.lane = other.lane AND r.slot = other.slot AND r.sequence > other.low_water AND r.status = 'queued'
    ORDER BY r.sequence
    LIMIT 1
) queued
WHERE (other.lane, other.slot) <> ($1, $2::smallint)`

// AcquireTx reads the lane's controls and marks, and locks nothing. The
// transaction must be READ COMMITTED, else pg.ErrIsolation.
func (claimPolicy) AcquireTx(ctx context.Context, tx pgx.Tx, stream lanes.Stream) (lease queues.Lease, err error) {
	var lowest *int64
	lease.Lease, err = lanes.SharedLeaseTx(ctx, tx, stream, func(b *pgx.Batch) {
		b.Queue(lowestMarkSQL, stream.Lane, stream.Slot).QueryRow(func(row pgx.Row) error { return row.Scan(&lowest) })
	})
	lease.LowestWater = lease.LowWater
	if lowest != nil {
		lease.LowestWater = min(lease.LowWater, *lowest)
	}
	return lease, err
}

// ClaimTx claims the oldest requests that no other transaction has locked. The
// transaction must be READ COMMITTED, which AcquireTx has checked.
func (claimPolicy) ClaimTx(ctx context.Context, tx pgx.Tx, lease queues.Lease, limit int) (claim queues.Claim, err error) {
	claim.Requests, claim.More, err = requestrows.ClaimNormalTx(ctx, tx, requestrows.NormalClaim{
		Stream: lease.Stream, LowWater: lease.LowWater, LowestWater: lease.LowestWater, Skip: lease.Skip, Only: lease.Only, Limit: limit,
	})
	return claim, err
}

// QueueCheckpoint adds nothing.
func (claimPolicy) QueueCheckpoint(*pgx.Batch, queues.Lease) {}
