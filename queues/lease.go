package queues

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// ClaimPolicy is what a lane decides for itself: how many drains share a slot, and in which order they claim.
type ClaimPolicy interface {
	// AcquireTx acquires the lease of a slot. ErrBusy: another drain has it. requests.ErrIsolation: tx is not READ COMMITTED.
	AcquireTx(ctx context.Context, tx pgx.Tx, slot int16) (Lease, error)
	// ClaimTx locks up to limit queued requests, in the order they are to be decided.
	ClaimTx(ctx context.Context, tx pgx.Tx, lease Lease, limit int) (Claim, error)
	// QueueCheckpoint adds to b what the lane records at the end of the drain, besides the low-water mark.
	QueueCheckpoint(b *pgx.Batch, lease Lease)
}

// ErrBusy means that another drain has the slot.
var ErrBusy = errors.New("queues: another drain has the slot")

// Lease is the right of one transaction to drain a slot, and the slot's state when it was acquired.
type Lease struct {
	Slot   int16
	Paused bool
	// RateCap is how many requests per second the lane may decide, nil for no cap.
	RateCap *int32
	// LowWater is a sequence number at or below which the stream has no queued request. Horizon was read after the lease was
	// acquired and before any claim.
	LowWater int64
	requests.Horizon
	// Behind is the mark that the sequence was found behind; 0 if it was not. LowWater is 0 then.
	Behind int64
	// NormalLowWater is, in the normal lane, the lowest mark of the slot and of those that have queued requests. Moving means
	// that variants of the slot are between the lanes.
	NormalLowWater int64
	Moving         bool
	// Skip are variants whose requests are not to be claimed; Only, if not nil, is the only one to be claimed.
	Skip []inventory.Ref
	Only *inventory.Ref
	Now  time.Time
}

// Claim is a group of requests, locked.
type Claim struct {
	Requests []requests.Request
	// More means that others may be left.
	More bool
	// InOrder means that no visible queued request of the stream precedes the last one of Requests, but for them.
	InOrder bool
}

// finished is a sequence number at or below which the drain of the claim leaves no visible queued request.
func (c *Claim) finished(lease *Lease) int64 {
	switch {
	case c.InOrder && !c.More:
		return lease.Settled()
	case c.InOrder && len(c.Requests) > 0:
		return c.Requests[len(c.Requests)-1].Sequence
	default:
		return lease.LowWater
	}
}

const leaseSQL = `
SELECT s.slot, control.paused, control.rate_cap, s.low_water,
       least(s.low_water,
             (SELECT min(normal.low_water)
              FROM lane_slots normal
              WHERE normal.lane = 'normal' AND normal.slot >= 0 AND s.lane = 'normal' AND normal.slot <> s.slot
                AND EXISTS (SELECT FROM reservation_requests r
                            WHERE r.lane = normal.lane AND r.slot = normal.slot AND r.sequence > normal.low_water AND r.status = 'queued'))),
       clock_timestamp()
FROM lane_slots s
JOIN lane_slots control ON control.lane = s.lane AND control.slot = -1
WHERE s.lane = $1 AND s.slot = $2`

const leaseAloneSQL = leaseSQL + `
FOR NO KEY UPDATE OF s SKIP LOCKED`

// LeaseTx acquires the lease of a slot that has one owner at a time, until the transaction ends. It is the first thing the
// transaction does. also, if not nil, adds statements that run once the slot is locked.
//
// The transaction must be READ COMMITTED, else requests.ErrIsolation: an older snapshot would miss a move between the lanes
// that was committed before the slot was locked. ErrBusy: another transaction has the lease.
func LeaseTx(ctx context.Context, tx pgx.Tx, lane string, slot int16, also func(*pgx.Batch)) (Lease, error) {
	lease, err := acquireTx(ctx, tx, leaseAloneSQL, lane, slot, also)
	if errors.Is(err, pgx.ErrNoRows) {
		return lease, ErrBusy
	}
	return lease, err
}

// SharedLeaseTx acquires a lease of a slot that several drains share. It locks nothing, and is the first thing the
// transaction does, which must be READ COMMITTED, else requests.ErrIsolation.
func SharedLeaseTx(ctx context.Context, tx pgx.Tx, lane string, slot int16) (Lease, error) {
	return acquireTx(ctx, tx, leaseSQL, lane, slot, nil)
}

func acquireTx(ctx context.Context, tx pgx.Tx, sql, lane string, slot int16, also func(*pgx.Batch)) (lease Lease, err error) {
	b := &pgx.Batch{}
	isolation.Queue(b)
	b.Queue(sql, lane, slot).QueryRow(func(row pgx.Row) error {
		return row.Scan(&lease.Slot, &lease.Paused, &lease.RateCap, &lease.LowWater, &lease.NormalLowWater, &lease.Now)
	})
	if also != nil {
		also(b)
	}
	requests.QueueHorizon(b, &lease.Horizon)
	if err = tx.SendBatch(ctx, b).Close(); err == nil && lease.Drawn < lease.LowWater {
		err = resetMarkTx(ctx, tx, lane, &lease)
	}
	if err != nil {
		return lease, fmt.Errorf("acquire the lease of %s slot %d: %w", lane, slot, err)
	}
	return lease, nil
}

const lockMarkSQL = `SELECT low_water FROM lane_slots WHERE lane = $1 AND slot = $2 FOR NO KEY UPDATE SKIP LOCKED`

const resetMarkSQL = `UPDATE lane_slots SET low_water = 0 WHERE lane = $1 AND slot = $2`

// resetMarkTx resets a slot's mark where the sequence has drawn less than it says, and the lease with it. That is so after
// rows were copied without the sequence (logical replication, a data-only restore): what is admitted then is below the
// mark, where no claim reads. The sequence is read again once the slot is locked, because another drain may have moved the
// mark since it was read first. If another transaction has the slot locked, a later drain finds the same.
func resetMarkTx(ctx context.Context, tx pgx.Tx, lane string, lease *Lease) error {
	var mark, drawn int64
	b := &pgx.Batch{}
	b.Queue(lockMarkSQL, lane, lease.Slot).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(&mark); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
	b.Queue(requests.DrawnSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&drawn) })
	if err := tx.SendBatch(ctx, b).Close(); err != nil || drawn >= mark {
		return err
	}
	_, err := tx.Exec(ctx, resetMarkSQL, lane, lease.Slot)
	lease.Behind = mark
	lease.LowWater, lease.NormalLowWater = 0, 0
	return err
}

// markSQL moves a mark to $4, or below the first queued request above $3 that is not above $4. If another drain is moving
// it, that is enough.
const markSQL = `
WITH mark AS MATERIALIZED (
    SELECT coalesce(min(unfinished.sequence) - 1, $4) AS low_water
    FROM (SELECT r.sequence
          FROM reservation_requests r
          WHERE r.lane = $1 AND r.slot = $2 AND r.sequence > $3 AND r.sequence <= $4 AND r.status = 'queued'
          ORDER BY r.sequence
          LIMIT 1) unfinished
), own AS MATERIALIZED (
    SELECT s.lane, s.slot
    FROM lane_slots s
    WHERE s.lane = $1 AND s.slot = $2 AND s.low_water < (SELECT low_water FROM mark)
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE lane_slots s
SET low_water = mark.low_water
FROM own, mark
WHERE s.lane = own.lane AND s.slot = own.slot`

// queueMark adds to b what moves the low-water mark as far as the stream is finished, in a batch that has finished the
// claimed requests. The mark does not pass what was settled before the claim: a request that commits later may have a lower
// number than those that were claimed.
func queueMark(b *pgx.Batch, lane string, lease *Lease, claim *Claim) {
	if settled := lease.Settled(); settled > lease.LowWater {
		b.Queue(markSQL, lane, lease.Slot, min(claim.finished(lease), settled), settled)
	}
}

// reportBehind logs and counts that the sequence of requests was behind the slot's mark.
func (d *Drain) reportBehind(ctx context.Context, lease Lease) {
	d.log.ErrorContext(ctx, "the sequence of requests is behind the low-water mark, which begins at 0 again: set reservation_requests_sequence_seq, claims are slow until then",
		"slot", lease.Slot, "mark", lease.Behind, "sequence", lease.Drawn)
	telemetry.SequenceBehind(ctx, d.lane)
}
