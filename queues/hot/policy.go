package hot

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// ClaimPolicy is how the hot lane claims.
type ClaimPolicy struct{}

const movingSQL = `SELECT EXISTS (SELECT FROM hot_variants WHERE slot = $1 AND state <> 'hot')`

// AcquireTx acquires the slot's lease, or returns queues.ErrBusy. Whether variants move is read after the slot is locked: a
// pin takes that lock first. The transaction must be READ COMMITTED, else requests.ErrIsolation.
func (ClaimPolicy) AcquireTx(ctx context.Context, tx pgx.Tx, slot int16) (queues.Lease, error) {
	var moving bool
	lease, err := queues.LeaseTx(ctx, tx, requests.Hot, slot, func(b *pgx.Batch) {
		b.Queue(movingSQL, slot).QueryRow(func(row pgx.Row) error { return row.Scan(&moving) })
	})
	lease.Moving = moving
	return lease, err
}

// ClaimTx claims the slot's oldest requests, and those of moving variants from the normal lane in one order with them. The
// transaction must be READ COMMITTED, which AcquireTx has checked.
func (ClaimPolicy) ClaimTx(ctx context.Context, tx pgx.Tx, lease queues.Lease, limit int) (claim queues.Claim, err error) {
	if lease.Moving {
		claim.Requests, err = requests.ClaimMovingTx(ctx, tx, lease.Slot, lease.LowWater, lease.Skip, limit)
		claim.More = len(claim.Requests) > 0
		return claim, err
	}
	claim.Requests, err = requests.ClaimSlotTx(ctx, tx, lease.Slot, lease.LowWater, lease.Skip, limit)
	claim.More, claim.InOrder = len(claim.Requests) == limit, len(lease.Skip) == 0
	return claim, err
}

// openSQL records the last number drawn for moves that have none recorded, or one that the sequence is behind. Every
// admission that routed by the old rule began before, so its key among the admissions under way is not above that number.
const openSQL = `
UPDATE hot_variants
SET admitted_before = (` + requests.DrawnSQL + `)
WHERE slot = $1 AND state <> 'hot' AND (admitted_before IS NULL OR admitted_before > $2)`

// oldRuleEnded compares with $2, the lowest key of the admissions under way, which is read once the slot is locked: an earlier
// reading may be older than admitted_before.
const oldRuleEnded = `h.admitted_before IS NOT NULL AND ($2::bigint IS NULL OR h.admitted_before < $2)`

// enteredSQL and leftSQL read the stream that variants come from once, however many they are: joined row by row, the
// planner looks each up by tenant, among all that a tenant ever asked for.
const enteredSQL = `
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT r.tenant_id, r.variant_id
    FROM lane_slots normal
    JOIN reservation_requests r ON r.lane = normal.lane AND r.slot = normal.slot AND r.sequence > ` + requests.NormalMark + `
    WHERE normal.lane = 'normal' AND normal.slot >= 0 AND r.status = 'queued'
)
UPDATE hot_variants h
SET state = 'hot', admitted_before = NULL
WHERE h.slot = $1 AND h.state = 'entering' AND ` + oldRuleEnded + `
  AND NOT EXISTS (SELECT FROM waiting w WHERE w.tenant_id = h.tenant_id AND w.variant_id = h.variant_id)`

const leftSQL = `
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT r.tenant_id, r.variant_id
    FROM reservation_requests r
    WHERE r.lane = 'hot' AND r.slot = $1 AND r.sequence > $3 AND r.status = 'queued'
)
DELETE FROM hot_variants h
WHERE h.slot = $1 AND h.state = 'leaving' AND ` + oldRuleEnded + `
  AND NOT EXISTS (SELECT FROM waiting w WHERE w.tenant_id = h.tenant_id AND w.variant_id = h.variant_id)`

// QueueCheckpoint settles the moves that are over: the first drain that sees a move records how far the sequence has drawn,
// and a later one finds that every admission which began before has ended.
func (ClaimPolicy) QueueCheckpoint(b *pgx.Batch, lease queues.Lease) {
	if !lease.Moving {
		return
	}
	b.Queue(enteredSQL, lease.Slot, lease.Lowest)
	b.Queue(leftSQL, lease.Slot, lease.Lowest, lease.LowWater)
	b.Queue(openSQL, lease.Slot, lease.Drawn)
}
