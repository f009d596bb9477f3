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

const lockSlotSQL = `SELECT slot FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE`

const (
	patienceSQL    = `SELECT current_setting('lock_timeout')`
	setPatienceSQL = `SELECT set_config('lock_timeout', $1, true)`
)

// reachableTx locks the slots of the variants that have one, in their order, and then gives a slot to each of the others. It
// returns the moves whose slots it got; the others are left to a later pass.
func (d *Detector) reachableTx(ctx context.Context, tx pgx.Tx, moves []move) (reachable []move, err error) {
	var slots, late []int16
	for _, m := range moves {
		if m.VariantID != "" && m.slot != noSlot {
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
	moves = slices.DeleteFunc(moves, func(m move) bool { return m.VariantID != "" && slices.Contains(late, m.slot) })
	var given []int16
	for _, m := range moves {
		if m.slot == noSlot {
			var free bool
			high, low := variantLock(m.TenantID, m.VariantID)
			if err := tx.QueryRow(ctx, tryVariantSQL, high, low).Scan(&free); err != nil {
				return nil, fmt.Errorf("lock variant %s: %w", m.VariantID, err)
			}
			if !free { // another transaction moves it
				continue
			}
			if m.slot, err = newSlotTx(ctx, tx, given); err != nil {
				return nil, fmt.Errorf("find a slot: %w", err)
			}
			given = append(given, m.slot)
		}
		reachable = append(reachable, m)
	}
	return reachable, nil
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
	if pgerr.IsLockTimeout(err) {
		return false, nil
	}
	return err == nil, err
}
