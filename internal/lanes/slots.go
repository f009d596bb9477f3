package lanes

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

const lockSlotsSQL = `
SELECT s.slot
FROM lane_slots s
WHERE s.lane = 'hot' AND s.slot IN (SELECT h.slot FROM hot_variants h WHERE h.tenant_id = $1 AND h.variant_id = ANY ($2))
ORDER BY s.slot
FOR NO KEY UPDATE OF s`

const slotsOfSQL = `SELECT variant_id, slot FROM hot_variants WHERE tenant_id = $1 AND variant_id = ANY ($2) ORDER BY slot`

// variantSlot is a hot variant's slot.
type variantSlot struct {
	VariantID string
	Slot      int16
}

// errMoved means that another transaction has moved a variant to a slot that is
// not locked.
var errMoved = errors.New("lanes: another transaction moved a variant to another slot")

// lockTries is how often inSlotsTx locks the slots of variants that move
// meanwhile, and how many slots newSlotTx tries.
const lockTries = 5

// lockVariantsSQL locks variants for moves, until the transaction ends.
const lockVariantsSQL = `
SELECT pg_advisory_xact_lock(high, low)
FROM (SELECT high, low FROM unnest($1::integer[], $2::integer[]) AS variant (high, low) ORDER BY high, low) AS sorted`

// tryVariantSQL is lockVariantsSQL for one variant, without waiting.
const tryVariantSQL = `SELECT pg_try_advisory_xact_lock($1, $2)`

// variantLock is the key of the advisory lock of a variant. Two variants may
// share one.
func variantLock(tenantID uuid.UUID, variantID string) (high, low int32) {
	h := fnv.New64a()
	_, _ = h.Write(append(tenantID[:], variantID...)) // a hash never fails
	sum := h.Sum64()
	return int32(sum >> 32), int32(sum)
}

// inSlotsTx locks the variants for moves, then their slots in order, and calls
// do with them in a savepoint.
//
// A variant may move to another slot while inSlotsTx waits for a lock, so it
// reads the slots again once they are locked. If they have changed, or do
// returns errMoved, it rolls back the savepoint, which releases the locks, and
// tries again.
func inSlotsTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantIDs []string, do func(tx pgx.Tx, slots []variantSlot) error) (err error) {
	highs, lows := make([]int32, len(variantIDs)), make([]int32, len(variantIDs))
	for i, id := range variantIDs {
		highs[i], lows[i] = variantLock(tenantID, id)
	}
	for range lockTries {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			pg.QueueIsolation(b)
			b.Queue(lockVariantsSQL, highs, lows)
			locked := pg.Collect(b, pgx.RowTo[int16], lockSlotsSQL, tenantID, variantIDs)
			slots := pg.Collect(b, pgx.RowToStructByPos[variantSlot], slotsOfSQL, tenantID, variantIDs)
			if err := tx.SendBatch(ctx, b).Close(); err != nil {
				return err
			}
			for _, v := range *slots {
				if !slices.Contains(*locked, v.Slot) {
					return errMoved
				}
			}
			return do(tx, *slots)
		})
		if !errors.Is(err, errMoved) {
			break
		}
	}
	return err
}

// freeSlotSQL locks a slot that no variant has and no transaction has locked,
// if there is one.
const freeSlotSQL = `
SELECT s.slot
FROM lane_slots s
WHERE s.lane = 'hot' AND s.slot >= 0 AND NOT EXISTS (SELECT FROM hot_variants h WHERE h.slot = s.slot)
  AND s.slot <> ALL (coalesce($1::smallint[], '{}'))
ORDER BY s.slot
LIMIT 1
FOR NO KEY UPDATE OF s SKIP LOCKED`

const slotTakenSQL = `SELECT EXISTS (SELECT FROM hot_variants WHERE slot = $1)`

// newSlotTx locks a slot that no variant has and that is not among given, or
// makes a new slot. It does not take a slot that another transaction gave to a
// variant before the lock was granted.
func newSlotTx(ctx context.Context, tx pgx.Tx, given []int16) (slot int16, err error) {
	for range lockTries {
		err = tx.QueryRow(ctx, freeSlotSQL, given).Scan(&slot)
		if errors.Is(err, pgx.ErrNoRows) {
			return makeSlotTx(ctx, tx, Hot)
		}
		if err != nil {
			return 0, err
		}
		var taken bool
		err = tx.QueryRow(ctx, slotTakenSQL, slot).Scan(&taken)
		if err != nil || !taken {
			return slot, err
		}
		given, err = append(given, slot), errMoved
	}
	return 0, err
}

// lockMakingSQL lets one transaction make slots at a time.
const lockMakingSQL = `SELECT pg_advisory_xact_lock('lane_slots'::regclass::oid::integer, 0)`

// makeSlotSQL makes one more slot. It returns no row if the lane has as many as
// it can have.
const makeSlotSQL = `
INSERT INTO lane_slots (lane, slot)
SELECT $1, max(slot) + 1
FROM lane_slots
WHERE lane = $1
HAVING max(slot) < 32767
RETURNING slot`

// ErrSlots means that a lane has as many slots as it can have, 32,768.
var ErrSlots = errors.New("lanes: the lane has as many slots as it can have")

// makeSlotTx makes one more slot of a lane. Another transaction that makes
// slots waits until this one ends.
func makeSlotTx(ctx context.Context, tx pgx.Tx, lane Lane) (slot int16, err error) {
	if _, err := tx.Exec(ctx, lockMakingSQL); err != nil {
		return 0, fmt.Errorf("make a slot of lane %s: %w", lane, err)
	}
	err = tx.QueryRow(ctx, makeSlotSQL, lane).Scan(&slot)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrSlots
	}
	if err != nil {
		return 0, fmt.Errorf("make a slot of lane %s: %w", lane, err)
	}
	return slot, nil
}
