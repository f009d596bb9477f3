package queues

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// Order is what a lane decides for itself: who may drain a slot, and in which order its requests are claimed.
type Order interface {
	// EnterTx begins a turn at a slot. ErrBusy: another drain has it. requests.ErrIsolation: tx is not READ COMMITTED.
	EnterTx(ctx context.Context, tx pgx.Tx, slot int16) (Turn, error)
	// ClaimTx locks up to limit queued requests, in the order they are to be decided. more means that others may be left.
	ClaimTx(ctx context.Context, tx pgx.Tx, turn Turn, limit int) (claimed []requests.Request, more bool, err error)
	// QueueLeave adds to b what the lane notes of the turn: how far its stream is finished.
	QueueLeave(b *pgx.Batch, turn Turn, claimed []requests.Request, more bool)
}

// ErrBusy means that another drain has the slot.
var ErrBusy = errors.New("queues: another drain has the slot")

// Turn is one transaction's turn at a slot, as its lane saw it on entering.
type Turn struct {
	Slot   int16
	Paused bool
	// RateCap is how many requests a second the lane may decide, nil for no cap.
	RateCap *int32
	// LowWater is a sequence number that no queued row of the stream lies at or below. Next is the mark that comes after
	// it, good once Settled: every row up to Next is visible or never will be. Drawn is the last sequence number drawn.
	LowWater, Next, Drawn int64
	Settled               bool
	// Foreign says that Next was noted in another cluster, from which the database was restored: nobody can tell when it is
	// settled, and it is noted anew.
	Foreign bool
	// Behind is the mark, or the next one, that the sequence was found behind; 0 if it was not. The marks are 0 again then.
	Behind int64
	// NormalLowWater is the lowest mark of the normal lane's streams, and Moving says that variants of the slot are between
	// the lanes.
	NormalLowWater int64
	Moving         bool
	// Skip are variants whose requests are not to be claimed in this turn.
	Skip []inventory.Ref
	Now  time.Time
}

// limit bounds a claim by the rate cap: more than a second's worth would be locked for nothing.
func (t Turn) limit(n int) int {
	if t.RateCap != nil {
		return min(n, int(*t.RateCap))
	}
	return n
}

const turnSQL = `
SELECT s.slot, control.paused, control.rate_cap, s.low_water, s.next_low_water,
       coalesce(s.next_horizon <= ` + horizon.Settled + `, true), coalesce(s.next_horizon >= ` + horizon.Given + `, false),
       (SELECT min(normal.low_water) FROM lane_slots normal WHERE normal.lane = 'normal' AND normal.slot >= 0), clock_timestamp()
FROM lane_slots s
JOIN lane_slots control ON control.lane = s.lane AND control.slot = -1
WHERE s.lane = $1 AND s.slot = $2`

const ownSQL = turnSQL + `
FOR NO KEY UPDATE OF s SKIP LOCKED`

// OwnSlotTx begins a turn that owns its slot until the transaction ends. It is the first thing the transaction does. also,
// if not nil, adds statements that run once the slot is locked.
//
// The transaction must be READ COMMITTED, else requests.ErrIsolation: an older snapshot would miss a move between the lanes
// that was committed before the slot was locked. ErrBusy: another transaction owns the slot.
func OwnSlotTx(ctx context.Context, tx pgx.Tx, lane string, slot int16, also func(*pgx.Batch)) (Turn, error) {
	turn, err := enterTx(ctx, tx, ownSQL, lane, slot, also)
	if errors.Is(err, pgx.ErrNoRows) {
		return turn, ErrBusy
	}
	return turn, err
}

// ShareSlotTx begins a turn at a slot that several drain side by side. It is the first thing the transaction does. The
// transaction must be READ COMMITTED, else requests.ErrIsolation.
func ShareSlotTx(ctx context.Context, tx pgx.Tx, lane string, slot int16) (Turn, error) {
	return enterTx(ctx, tx, turnSQL, lane, slot, nil)
}

func enterTx(ctx context.Context, tx pgx.Tx, sql, lane string, slot int16, also func(*pgx.Batch)) (turn Turn, err error) {
	b := &pgx.Batch{}
	isolation.Queue(b)
	b.Queue(requests.DrawnSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&turn.Drawn) })
	b.Queue(sql, lane, slot).QueryRow(func(row pgx.Row) error {
		return row.Scan(&turn.Slot, &turn.Paused, &turn.RateCap, &turn.LowWater, &turn.Next, &turn.Settled, &turn.Foreign, &turn.NormalLowWater, &turn.Now)
	})
	if also != nil {
		also(b)
	}
	if err = tx.SendBatch(ctx, b).Close(); err == nil && turn.Drawn < max(turn.LowWater, turn.Next) {
		err = resetMarkTx(ctx, tx, lane, &turn)
	}
	if err != nil {
		return turn, fmt.Errorf("enter %s slot %d: %w", lane, slot, err)
	}
	return turn, nil
}

const lockMarkSQL = `SELECT greatest(low_water, next_low_water) FROM lane_slots WHERE lane = $1 AND slot = $2 FOR NO KEY UPDATE SKIP LOCKED`

const resetMarkSQL = `
UPDATE lane_slots
SET low_water = 0, next_low_water = 0, next_horizon = NULL
WHERE lane = $1 AND slot = $2`

// resetMarkTx resets a slot's marks where the sequence has drawn less than they say, and the turn with them. That is so
// after rows were copied without the sequence (logical replication, a data-only restore): what is admitted then lies below
// the mark, where no claim looks. The sequence is read again once the slot is locked, because another turn may have moved
// the marks since it was read first. turn.Drawn stays what was read first, before the transaction had an id: the next mark
// must not be a number that a transaction with a higher id may have drawn. If another transaction has the slot locked, a
// later turn finds the same.
func resetMarkTx(ctx context.Context, tx pgx.Tx, lane string, turn *Turn) error {
	var mark, drawn int64
	b := &pgx.Batch{}
	b.Queue(lockMarkSQL, lane, turn.Slot).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&mark); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	b.Queue(requests.DrawnSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&drawn) })
	if err := tx.SendBatch(ctx, b).Close(); err != nil || drawn >= mark {
		return err
	}
	_, err := tx.Exec(ctx, resetMarkSQL, lane, turn.Slot)
	turn.Behind = mark
	turn.LowWater, turn.Next, turn.NormalLowWater, turn.Settled, turn.Foreign = 0, 0, 0, true, false
	return err
}

const markOwnSQL = `
UPDATE lane_slots
SET low_water = $3,
    next_low_water = CASE WHEN $4 THEN $5 ELSE next_low_water END,
    next_horizon = CASE WHEN $4 THEN ` + horizon.Own + ` ELSE next_horizon END
WHERE lane = $1 AND slot = $2`

// QueueOwnMark adds to b what moves the low-water mark of a slot that the turn owns. claimed were the oldest queued rows
// of the stream, all of them unless more says otherwise, and the batch finishes them.
//
// The mark moves only past sequence numbers whose transactions have ended: Drawn was read before this transaction had an
// id, so whoever drew a number up to it has a lower one, and Drawn becomes the mark once a later turn finds that all of
// those have ended.
func QueueOwnMark(b *pgx.Batch, lane string, turn Turn, claimed []requests.Request, more bool) {
	mark := turn.LowWater
	if turn.Settled {
		mark = max(mark, turn.Next)
	}
	if more && len(claimed) == 0 {
		return // the rate cap let nothing through
	}
	if more {
		mark = min(mark, claimed[len(claimed)-1].Sequence)
	}
	mark = max(mark, turn.LowWater)
	renew := turn.Settled && turn.Drawn > turn.Next || turn.Foreign
	if mark > turn.LowWater || renew {
		b.Queue(markOwnSQL, lane, turn.Slot, mark, renew, turn.Drawn)
	}
}

const renewable = `coalesce(s.next_horizon <= ` + horizon.Settled + ` OR s.next_horizon >= ` + horizon.Given + `, true)`

const markSharedSQL = `
WITH own AS MATERIALIZED (
    SELECT lane, slot
    FROM lane_slots
    WHERE lane = $1 AND slot = $2
    FOR NO KEY UPDATE SKIP LOCKED
), unfinished AS MATERIALIZED (
    SELECT r.sequence
    FROM reservation_requests r
    WHERE r.lane = $1 AND r.slot = $2 AND r.sequence > $3 AND r.status = 'queued'
    ORDER BY r.sequence
    LIMIT 1
)
UPDATE lane_slots s
SET low_water = greatest(s.low_water, least(
        CASE WHEN s.next_horizon <= ` + horizon.Settled + ` THEN s.next_low_water ELSE s.low_water END,
        (SELECT sequence - 1 FROM unfinished))),
    next_low_water = CASE WHEN ` + renewable + ` THEN greatest(s.next_low_water, $4) ELSE s.next_low_water END,
    next_horizon = CASE WHEN ` + renewable + ` THEN ` + horizon.Own + ` ELSE s.next_horizon END
FROM own
WHERE s.lane = own.lane AND s.slot = own.slot`

// QueueSharedMark is QueueOwnMark for a slot that several drain side by side: it asks which row is the first that nobody
// has finished. If somebody else is moving the mark at this moment it does nothing.
func QueueSharedMark(b *pgx.Batch, lane string, turn Turn) {
	if turn.Settled && turn.Drawn > turn.LowWater || turn.Foreign {
		b.Queue(markSharedSQL, lane, turn.Slot, turn.LowWater, turn.Drawn)
	}
}

// reportBehind logs and counts that the sequence of requests was behind the slot's mark.
func (d *Drain) reportBehind(ctx context.Context, turn Turn) {
	d.log.ErrorContext(ctx, "the sequence of requests is behind the low-water mark, which begins at 0 again: set reservation_requests_sequence_seq, claims are slow until then",
		"slot", turn.Slot, "mark", turn.Behind, "sequence", turn.Drawn)
	telemetry.SequenceBehind(ctx, d.lane)
}
