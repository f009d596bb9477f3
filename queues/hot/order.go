package hot

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// Order is how the hot lane claims.
type Order struct{}

const movingSQL = `SELECT EXISTS (SELECT FROM hot_variants WHERE slot = $1 AND state <> 'hot')`

// EnterTx takes the slot, or returns queues.ErrBusy. Whether variants move is asked after the slot is locked: a pin takes
// that lock first. The transaction must be READ COMMITTED, else requests.ErrIsolation.
func (Order) EnterTx(ctx context.Context, tx pgx.Tx, slot int16) (queues.Turn, error) {
	var moving bool
	turn, err := queues.OwnSlotTx(ctx, tx, requests.Hot, slot, func(b *pgx.Batch) {
		b.Queue(movingSQL, slot).QueryRow(func(row pgx.Row) error { return row.Scan(&moving) })
	})
	turn.Moving = moving
	return turn, err
}

// ClaimTx claims the slot's oldest requests, and those of moving variants from the normal lane in one order with them. The
// transaction must be READ COMMITTED, which EnterTx has checked.
func (Order) ClaimTx(ctx context.Context, tx pgx.Tx, turn queues.Turn, limit int) (claimed []requests.Request, more bool, err error) {
	if turn.Moving {
		claimed, err = requests.ClaimMovingTx(ctx, tx, turn.Slot, turn.LowWater, turn.Skip, limit)
		return claimed, len(claimed) > 0, err
	}
	claimed, err = requests.ClaimSlotTx(ctx, tx, turn.Slot, turn.LowWater, turn.Skip, limit)
	return claimed, len(claimed) == limit, err
}

// openSQL notes the horizon of moves that have none, or one of a cluster from which the database was restored.
const openSQL = `
UPDATE hot_variants
SET horizon = ` + horizon.Own + `
WHERE slot = $1 AND state <> 'hot' AND (horizon IS NULL OR horizon >= ` + horizon.Given + `)`

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
SET state = 'hot', horizon = NULL
WHERE h.slot = $1 AND h.state = 'entering' AND h.horizon <= ` + horizon.Settled + `
  AND NOT EXISTS (SELECT FROM waiting w WHERE w.tenant_id = h.tenant_id AND w.variant_id = h.variant_id)`

const leftSQL = `
WITH waiting AS MATERIALIZED (
    SELECT DISTINCT r.tenant_id, r.variant_id
    FROM reservation_requests r
    WHERE r.lane = 'hot' AND r.slot = $1 AND r.sequence > $2 AND r.status = 'queued'
)
DELETE FROM hot_variants h
WHERE h.slot = $1 AND h.state = 'leaving' AND h.horizon <= ` + horizon.Settled + `
  AND NOT EXISTS (SELECT FROM waiting w WHERE w.tenant_id = h.tenant_id AND w.variant_id = h.variant_id)`

// QueueLeave moves the slot's mark, and settles the moves that are over: the first turn that sees a move notes its own
// transaction's id, which every admission by the old rule lies below, and a later turn finds that all those have ended.
func (Order) QueueLeave(b *pgx.Batch, turn queues.Turn, claimed []requests.Request, more bool) {
	if !turn.Moving && len(turn.Skip) == 0 {
		queues.QueueOwnMark(b, requests.Hot, turn, claimed, more)
		return
	}
	// Rows were left out, or finished between being found and being locked: how far the claim went says nothing.
	queues.QueueSharedMark(b, requests.Hot, turn)
	if !turn.Moving {
		return
	}
	b.Queue(openSQL, turn.Slot)
	b.Queue(enteredSQL, turn.Slot)
	b.Queue(leftSQL, turn.Slot, turn.LowWater)
}
