package hot

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// NewLane makes the hot lane. By default its batches have 2,000 requests and 4
// drains run concurrently, each at a different slot.
func NewLane(db *pgxpool.Pool, log *slog.Logger, config queues.LaneConfig) (*queues.Lane, error) {
	return queues.NewLane(db, log, lanes.Hot, claimPolicy{}, config)
}

// claimPolicy is how the hot lane claims.
type claimPolicy struct{}

// AcquireTx acquires the slot's lease, or returns lanes.ErrBusy. It reads
// whether variants move after the slot is locked, because a pin takes that lock
// first. The transaction must be READ COMMITTED, else pg.ErrIsolation.
func (claimPolicy) AcquireTx(ctx context.Context, tx pgx.Tx, stream lanes.Stream) (lease queues.Lease, err error) {
	lease.Lease, err = lanes.LeaseTx(ctx, tx, stream, func(b *pgx.Batch) {
		lanes.QueueMoving(b, stream.Slot, &lease.Moving)
	})
	return lease, err
}

// ClaimTx claims the slot's oldest requests. If variants move, it claims their
// requests in the normal lane too, in one order. The transaction must be READ
// COMMITTED, which AcquireTx has checked.
func (claimPolicy) ClaimTx(ctx context.Context, tx pgx.Tx, lease queues.Lease, limit int) (claim queues.Claim, err error) {
	if lease.Moving {
		claim.Requests, err = requestrows.ClaimMovingTx(ctx, tx, lease.Slot, lease.LowWater, lease.Skip, limit)
		claim.More = len(claim.Requests) > 0
		return claim, err
	}
	claim.Requests, err = requestrows.ClaimSlotTx(ctx, tx, lease.Slot, lease.LowWater, lease.Skip, limit)
	claim.More, claim.InOrder = len(claim.Requests) == limit, len(lease.Skip) == 0
	return claim, err
}

// enteredSQL and leftSQL read the stream that variants come from once, for any
// number of variants. With a join per row, the planner would search for each
// variant among all requests of its tenant.
const enteredSQL = `
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT r.tenant_id, r.variant_id
    FROM ` + lanes.ParallelSlots + ` parallel
    CROSS JOIN LATERAL (
        SELECT r.tenant_id, r.variant_id
        FROM reservation_requests r
        WHERE r.lane = parallel.lane AND r.slot = parallel.slot AND r.sequence > ` + lanes.ParallelMark + ` AND r.status = 'queued'
        ORDER BY r.sequence
    ) r
)` + lanes.Entered

const leftSQL = `
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT r.tenant_id, r.variant_id
    FROM reservation_requests r
    WHERE r.lane = 'hot' AND r.slot = $1 AND r.sequence > $3 AND r.status = 'queued'
), ended AS (` + lanes.Left + `
    RETURNING h.slot
)
` + queues.NotifyParallel

// QueueCheckpoint ends the moves that are finished. The first drain that reads
// a move records the last sequence number drawn. A later drain ends the move
// once every admission that began before has ended. When a variant has left, it
// wakes the streams that its requests are decided in from then on: an earlier
// wake of a request that was admitted after the claim found the variant listed.
func (claimPolicy) QueueCheckpoint(b *pgx.Batch, lease queues.Lease) {
	if !lease.Moving {
		return
	}
	b.Queue(enteredSQL, lease.Slot, lease.Lowest)
	b.Queue(leftSQL, lease.Slot, lease.Lowest, lease.LowWater)
	lanes.QueueOpen(b, lease.Lease)
}
