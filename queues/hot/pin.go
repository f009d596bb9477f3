package hot

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/requests"
)

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

// PinTx is Pin in the caller's transaction. It locks the slot of a variant that has one, which waits for the drain that owns
// it: call it before anything that locks requests, stocks or reservations, and LockSlotsTx before pinning several. Another
// variant gets a slot that no variant has.
//
// The transaction must be READ COMMITTED, else requests.ErrIsolation: an older snapshot may place the variant in a slot that
// it has left.
func PinTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	var slot int16
	err := inSlotsTx(ctx, tx, tenantID, []string{variantID}, func(tx pgx.Tx, slots []variantSlot) (err error) {
		if len(slots) > 0 {
			slot = slots[0].Slot
		} else if slot, err = newSlotTx(ctx, tx, nil); err != nil {
			return err
		}
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
	err := inSlotsTx(ctx, tx, tenantID, []string{variantID}, func(tx pgx.Tx, slots []variantSlot) error {
		if len(slots) == 0 {
			return nil
		}
		slot = slots[0].Slot
		tag, err := tx.Exec(ctx, unpinSQL, tenantID, variantID, slot, automatic)
		moved = tag.RowsAffected() > 0
		return err
	})
	if err != nil {
		return fmt.Errorf("unpin variant %s: %w", variantID, err)
	}
	if !moved {
		return nil
	}
	return ringer.RingTx(ctx, tx, []requests.Wake{{Lane: requests.Hot, Slot: slot}, {Lane: requests.Normal}})
}
