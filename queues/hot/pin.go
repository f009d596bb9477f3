package hot

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/isolation"
	"github.com/holdfast/holdfast/requests"
)

const lockSlotSQL = `SELECT slot FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE`

// pinSQL edits a variant in the slot that is locked, or makes one there. No row: another transaction has just moved it to
// another slot.
const pinSQL = `
INSERT INTO hot_variants AS h (tenant_id, variant_id, slot, pinned)
VALUES ($1, $2, $3, true)
ON CONFLICT (tenant_id, variant_id) DO UPDATE
SET pinned = true, why = NULL, admitted_before = NULL, moved_at = clock_timestamp(),
    state = CASE WHEN h.state = 'leaving' THEN 'entering' ELSE h.state END
WHERE h.slot = excluded.slot`

// Pin makes a variant hot until it is unpinned: from the commit on, a request for it that is sent later is decided
// later. Pinning a hot variant changes nothing.
func Pin(ctx context.Context, db *pgxpool.Pool, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return PinTx(ctx, tx, ringer, tenantID, variantID) })
}

// PinTx is Pin in the caller's transaction. It locks the variant's slot, which waits for the drain that owns it: call it
// before anything that locks requests, stocks or reservations, and LockSlotsTx before pinning several.
//
// The transaction must be READ COMMITTED, else requests.ErrIsolation: an older snapshot may place the variant in a slot that
// it has left.
func PinTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	var slot int16
	err := inSlotsTx(ctx, tx, tenantID, []string{variantID}, func(tx pgx.Tx, slots []int16) error {
		slot = only(slots)
		tag, err := tx.Exec(ctx, pinSQL, tenantID, variantID, slot)
		if err == nil && tag.RowsAffected() == 0 {
			err = errMoved
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("pin variant %s: %w", variantID, err)
	}
	return ringer.RingTx(ctx, tx, []requests.Wake{{Lane: requests.Hot, Slot: slot}})
}

// unpinSQL edits a variant in the slot that is locked.
const unpinSQL = `
UPDATE hot_variants
SET state = 'leaving', pinned = false, why = NULL, admitted_before = NULL, moved_at = clock_timestamp()
WHERE tenant_id = $1 AND variant_id = $2 AND slot = $3 AND state <> 'leaving' AND (pinned OR $4)`

const elsewhereSQL = `SELECT EXISTS (SELECT FROM hot_variants WHERE tenant_id = $1 AND variant_id = $2 AND slot <> $3)`

// Unpin takes a pin away and sends the variant back to the normal lane. Its slot decides what was admitted before; then the
// variant is normal. Unpinning a variant that is not pinned changes nothing: what is hot by itself stays so.
func Unpin(ctx context.Context, db *pgxpool.Pool, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return UnpinTx(ctx, tx, ringer, tenantID, variantID) })
}

// UnpinTx is Unpin in the caller's transaction. It locks the variant's slot; see PinTx, also for the isolation level.
func UnpinTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	return unpinTx(ctx, tx, ringer, tenantID, variantID, false)
}

// ExpelTx is UnpinTx for a variant that is to be normal, whether it was pinned or became hot automatically. The isolation level
// is PinTx's.
func ExpelTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	return unpinTx(ctx, tx, ringer, tenantID, variantID, true)
}

func unpinTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string, automatic bool) error {
	var slot int16
	moved := false
	err := inSlotsTx(ctx, tx, tenantID, []string{variantID}, func(tx pgx.Tx, slots []int16) error {
		slot = only(slots)
		tag, err := tx.Exec(ctx, unpinSQL, tenantID, variantID, slot, automatic)
		moved = tag.RowsAffected() > 0
		if err != nil || moved {
			return err
		}
		var elsewhere bool // another transaction has just moved it, or made it hot, there
		if err := tx.QueryRow(ctx, elsewhereSQL, tenantID, variantID, slot).Scan(&elsewhere); err != nil {
			return err
		}
		if elsewhere {
			return errMoved
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("unpin variant %s: %w", variantID, err)
	}
	if !moved {
		return nil
	}
	return ringer.RingTx(ctx, tx, []requests.Wake{{Lane: requests.Hot, Slot: slot}, {Lane: requests.Normal}})
}

// slotsOfSQL finds the slots of variants: the one that each has, or the one that its name falls to. None before the first
// worker has made slots.
const slotsOfSQL = `
SELECT s.slot
FROM lane_slots s
WHERE s.lane = 'hot' AND s.slot IN (
    SELECT coalesce(h.slot, v.hash % greatest(made.slots, 1))
    FROM unnest($2::text[], $3::bigint[]) AS v (variant_id, hash)
    CROSS JOIN (SELECT count(*) AS slots FROM lane_slots WHERE lane = 'hot' AND slot >= 0) AS made
    LEFT JOIN hot_variants h ON h.tenant_id = $1 AND h.variant_id = v.variant_id)
ORDER BY s.slot`

const lockSlotsSQL = slotsOfSQL + `
FOR NO KEY UPDATE OF s`

// LockSlotsTx locks the slots of the variants, in order. Who pins or unpins several in one transaction calls it first:
// one after the other they would lock their slots in any order, and two who do so can wait for each other. The isolation
// level is PinTx's.
func LockSlotsTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantIDs []string) error {
	err := inSlotsTx(ctx, tx, tenantID, variantIDs, func(pgx.Tx, []int16) error { return nil })
	if err != nil {
		return fmt.Errorf("lock the slots of %d variants: %w", len(variantIDs), err)
	}
	return nil
}

// errMoved means that another transaction has moved a variant to a slot that is not locked.
var errMoved = errors.New("hot: a variant was moved to another slot meanwhile")

// lockTries is how often inSlotsTx locks slots that turn out to be others.
const lockTries = 5

// inSlotsTx locks the slots of the variants, in order, and calls do with them, in a savepoint. A variant may be moved to
// another slot while its slot is waited for: the slots are read again once they are locked, and if they are others, the
// savepoint ends, which gives the locks back, and others are locked. Also if do returns errMoved.
func inSlotsTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantIDs []string, do func(tx pgx.Tx, slots []int16) error) (err error) {
	hashes := make([]int64, len(variantIDs))
	for i, id := range variantIDs {
		hashes[i] = hashOf(tenantID, id)
	}
	for range lockTries {
		err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			var locked, slots []int16
			b := &pgx.Batch{}
			isolation.Queue(b)
			for _, read := range []struct {
				sql  string
				into *[]int16
			}{{lockSlotsSQL, &locked}, {slotsOfSQL, &slots}} {
				b.Queue(read.sql, tenantID, variantIDs, hashes).Query(func(rows pgx.Rows) (err error) {
					*read.into, err = pgx.CollectRows(rows, pgx.RowTo[int16])
					return err
				})
			}
			if err := tx.SendBatch(ctx, b).Close(); err != nil {
				return err
			}
			if !slices.Equal(locked, slots) {
				return errMoved
			}
			return do(tx, slots)
		})
		if !errors.Is(err, errMoved) {
			break
		}
	}
	return err
}

// only is the slot of a single variant: the first before any was made.
func only(slots []int16) int16 {
	if len(slots) == 0 {
		return 0
	}
	return slots[0]
}

func hashOf(tenantID uuid.UUID, variantID string) int64 {
	h := fnv.New32a()
	_, _ = h.Write(append(tenantID[:], variantID...)) // a hash never fails
	return int64(h.Sum32())
}
