package lanes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/pg"
)

// ErrBusy means that another drain has the slot.
var ErrBusy = errors.New("lanes: another drain has the slot")

// Lease is the right of one transaction to drain a slot, and the slot's state
// when it was acquired.
type Lease struct {
	Stream
	Paused bool
	// RateCap is how many requests per second the lane may decide, nil for no
	// cap.
	RateCap *int32
	// LowWater is a sequence number at or below which the stream has no queued
	// request. Horizon was read after the lease was acquired and before any
	// claim.
	LowWater int64
	Horizon
	// Behind is the slot's mark if it was higher than the last number drawn,
	// else 0. LowWater is 0 then.
	Behind int64
	Now    time.Time
}

const leaseSQL = `
SELECT control.paused, control.rate_cap, s.low_water, clock_timestamp()
FROM lane_slots s
JOIN ` + Controls + ` control ON control.lane = s.lane
WHERE s.lane = $1 AND s.slot = $2`

const leaseAloneSQL = leaseSQL + `
FOR NO KEY UPDATE OF s SKIP LOCKED`

// LeaseTx acquires the lease of a slot that has one owner at a time, until the
// transaction ends. It must be the first statement of the transaction. also, if
// not nil, adds statements that run once the slot is locked.
//
// The transaction must be READ COMMITTED, else ErrIsolation: an older snapshot
// would miss a move between the lanes that was committed before the slot was
// locked. ErrBusy: another transaction has the lease.
func LeaseTx(ctx context.Context, tx pgx.Tx, stream Stream, also func(*pgx.Batch)) (Lease, error) {
	lease, err := acquireTx(ctx, tx, leaseAloneSQL, stream, also)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease, ErrBusy
	}
	return lease, err
}

// SharedLeaseTx acquires a lease of a slot that several drains share. It locks
// nothing. It must be the first statement of the transaction, which must be
// READ COMMITTED, else ErrIsolation. also adds statements that run after it.
func SharedLeaseTx(ctx context.Context, tx pgx.Tx, stream Stream, also func(*pgx.Batch)) (Lease, error) {
	return acquireTx(ctx, tx, leaseSQL, stream, also)
}

func acquireTx(ctx context.Context, tx pgx.Tx, sql string, stream Stream, also func(*pgx.Batch)) (Lease, error) {
	lease := Lease{Stream: stream}
	b := &pgx.Batch{}
	pg.QueueIsolation(b)
	b.Queue(sql, stream.Lane, stream.Slot).QueryRow(func(row pgx.Row) error {
		return row.Scan(&lease.Paused, &lease.RateCap, &lease.LowWater, &lease.Now)
	})
	if also != nil {
		also(b)
	}
	QueueHorizon(b, &lease.Horizon)
	err := tx.SendBatch(ctx, b).Close()
	if err == nil && lease.Drawn < lease.LowWater {
		err = resetMarkTx(ctx, tx, &lease)
	}
	if err != nil {
		return lease, fmt.Errorf("acquire the lease of %s slot %d: %w", stream.Lane, stream.Slot, err)
	}
	return lease, nil
}

const lockMarkSQL = `SELECT low_water FROM lane_slots WHERE lane = $1 AND slot = $2 FOR NO KEY UPDATE SKIP LOCKED`

const resetMarkSQL = `UPDATE lane_slots SET low_water = 0 WHERE lane = $1 AND slot = $2`

// resetMarkTx resets the mark of a slot, and of the lease, to 0 if it is higher
// than the last number drawn. That happens after rows were copied without the
// sequence (logical replication, a data-only restore): the requests that are
// admitted then are below the mark, where no claim reads.
//
// It reads the sequence again once the slot is locked, because another drain
// may have moved the mark since the first reading. If another transaction has
// locked the slot, it does nothing, and a later drain resets the mark.
func resetMarkTx(ctx context.Context, tx pgx.Tx, lease *Lease) error {
	var mark, drawn int64
	b := &pgx.Batch{}
	b.Queue(lockMarkSQL, lease.Lane, lease.Slot).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&mark); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	b.Queue(DrawnSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&drawn) })
	if err := tx.SendBatch(ctx, b).Close(); err != nil || drawn >= mark {
		return err
	}
	_, err := tx.Exec(ctx, resetMarkSQL, lease.Lane, lease.Slot)
	lease.Behind = mark
	lease.LowWater = 0
	return err
}

// AdvanceMark is the end of a SQL statement that moves the mark of the stream
// $1, $2 up to low_water of its CTE mark. It leaves a mark that another
// transaction is moving.
const AdvanceMark = `, own AS MATERIALIZED (
    SELECT s.lane, s.slot
    FROM lane_slots s
    WHERE s.lane = $1 AND s.slot = $2 AND s.low_water < (SELECT low_water FROM mark)
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE lane_slots s
SET low_water = mark.low_water
FROM own, mark
WHERE s.lane = own.lane AND s.slot = own.slot`

// ParallelMark is a SQL expression: the low-water mark of the stream in the row
// parallel of ParallelSlots. It is 0 if the sequence is behind the mark and the
// stream's own drain has not reset it yet.
const ParallelMark = `CASE WHEN parallel.low_water > (` + DrawnSQL + `) THEN 0 ELSE parallel.low_water END`

// EnterSQL makes the transaction an admission under way. It comes before the
// transaction draws a sequence number.
const EnterSQL = `SELECT ` + horizon.EnterSequence + ` FROM reservation_requests_sequence_seq`

// DrawnSQL returns the last sequence number drawn, 0 for none.
const DrawnSQL = `SELECT ` + horizon.Drawn + ` FROM reservation_requests_sequence_seq`

const lowestSQL = `SELECT ` + horizon.LowestWriter + ` FROM reservation_requests_sequence_seq`

// Horizon is how far the status table is complete.
type Horizon struct {
	// Drawn is the last sequence number drawn.
	Drawn int64
	// Lowest is below every number that an admission under way has drawn or
	// will draw; nil if none is under way. An admission that inserts decided
	// requests only does not count.
	Lowest *int64
}

// VisibleUpTo returns a sequence number at or below which every request that was
// queued is visible to the next statement, or never will be. One that was
// inserted as decided may not be.
func (h Horizon) VisibleUpTo() int64 {
	if h.Lowest != nil {
		return min(h.Drawn, *h.Lowest)
	}
	return h.Drawn
}

// QueueHorizon adds to b the statements that read the horizon into h. The
// transaction must be READ COMMITTED: only the statements after them see all
// requests that are settled.
func QueueHorizon(b *pgx.Batch, h *Horizon) {
	b.Queue(DrawnSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&h.Drawn) })
	b.Queue(lowestSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&h.Lowest) })
}
