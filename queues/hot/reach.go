package hot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgerr"
)

// A pass waits for the drain that owns a slot, but no longer than slotWait, and once one did not end in that time, no
// longer than lateWait for each of the others: meanwhile it keeps those that it has from their drains.
const (
	slotWait = 250 * time.Millisecond
	lateWait = 20 * time.Millisecond
)

const (
	patienceSQL    = `SELECT current_setting('lock_timeout')`
	setPatienceSQL = `SELECT set_config('lock_timeout', $1, true)`
)

// reachableTx locks the slots of the moves, in their order, and returns the moves whose slots it got. The next pass of this
// process promotes to no slot that it did not get: a drain that stands still would hold up all that is new.
func (d *Detector) reachableTx(ctx context.Context, tx pgx.Tx, moves []move) (reachable []move, err error) {
	var slots, late []int16
	for _, m := range moves {
		if m.VariantID != "" {
			slots = append(slots, m.slot)
		}
	}
	slices.Sort(slots)
	wait := slotWait
	for _, slot := range slices.Compact(slots) {
		got, err := lockWithinTx(ctx, tx, slot, wait)
		if err != nil {
			return nil, fmt.Errorf("lock slot %d: %w", slot, err)
		}
		if !got {
			late, wait = append(late, slot), lateWait
		}
	}
	d.late.Store(&late)
	return slices.DeleteFunc(moves, func(m move) bool { return m.VariantID != "" && slices.Contains(late, m.slot) }), nil
}

// lockWithinTx locks a slot, or reports false if it does not get it in time. The transaction's own patience stays as it is.
func lockWithinTx(ctx context.Context, tx pgx.Tx, slot int16, wait time.Duration) (got bool, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		var patience string
		if err := tx.QueryRow(ctx, patienceSQL).Scan(&patience); err != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(setPatienceSQL, fmt.Sprint(wait.Milliseconds()))
		b.Queue(lockSlotSQL, slot)
		b.Queue(setPatienceSQL, patience)
		return tx.SendBatch(ctx, b).Close()
	})
	if pgerr.Code(err) == "55P03" {
		return false, nil
	}
	return err == nil, err
}

// reachable are the slots but for those that the last pass did not get, unless that leaves none.
func (d *Detector) reachable(slots []slotLoad) []slotLoad {
	late := d.late.Load()
	if late == nil {
		return slots
	}
	left := slices.DeleteFunc(slices.Clone(slots), func(l slotLoad) bool { return slices.Contains(*late, l.slot) })
	if len(left) == 0 {
		return slots
	}
	return left
}
