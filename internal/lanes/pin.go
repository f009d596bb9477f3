package lanes

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pinSQL updates a variant in the slot that is locked, or inserts one there. It
// returns no row if another transaction has just moved the variant to another
// slot.
const pinSQL = `
INSERT INTO hot_variants AS h (tenant_id, variant_id, slot, pinned)
VALUES ($1, $2, $3, true)
ON CONFLICT (tenant_id, variant_id) DO UPDATE
SET pinned = true, why = NULL, admitted_before = NULL, moved_at = clock_timestamp(),
    state = CASE WHEN h.state = 'leaving' THEN 'entering' ELSE h.state END
WHERE h.slot = excluded.slot`

// Pin makes a variant hot until it is unpinned. Of the requests that are sent
// after the commit, a later one is decided later. Pinning a hot variant leaves
// it in its slot.
func Pin(ctx context.Context, db *pgxpool.Pool, waker Waker, tenantID uuid.UUID, variantID string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return PinTx(ctx, tx, waker, tenantID, variantID) })
}

// PinTx is Pin in the caller's transaction. It locks the slot of a variant that
// has one, and waits for the drain that owns the slot. Call it before anything
// that locks requests, stocks or reservations, and call LockSlotsTx before
// pinning several variants. A variant without a slot gets a slot that no other
// variant has.
//
// The transaction must be READ COMMITTED, else ErrIsolation: an older snapshot
// may place the variant in a slot that it has left.
func PinTx(ctx context.Context, tx pgx.Tx, waker Waker, tenantID uuid.UUID, variantID string) error {
	var slot int16
	err := inSlotsTx(ctx, tx, tenantID, []string{variantID}, func(tx pgx.Tx, slots []variantSlot) (err error) {
		if len(slots) > 0 {
			slot = slots[0].Slot
		} else {
			slot, err = newSlotTx(ctx, tx, nil)
			if err != nil {
				return err
			}
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
	return waker.InsertTx(ctx, tx, []Stream{{Lane: Hot, Slot: slot}})
}

// unpinSQL edits a variant in the slot that is locked.
const unpinSQL = `
UPDATE hot_variants
SET state = 'leaving', pinned = false, why = NULL, admitted_before = NULL, moved_at = clock_timestamp()
WHERE tenant_id = $1 AND variant_id = $2 AND slot = $3 AND state <> 'leaving' AND (pinned OR $4)`

// Unpin removes a pin and moves the variant to the normal lane. Its slot
// decides the requests that were admitted before; then the variant is normal.
// Unpinning a variant that is not pinned changes nothing: a variant that became
// hot automatically stays hot.
func Unpin(ctx context.Context, db *pgxpool.Pool, waker Waker, tenantID uuid.UUID, variantID string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return UnpinTx(ctx, tx, waker, tenantID, variantID) })
}

// UnpinTx is Unpin in the caller's transaction. It locks the variant's slot;
// see PinTx, also for the isolation level.
func UnpinTx(ctx context.Context, tx pgx.Tx, waker Waker, tenantID uuid.UUID, variantID string) error {
	return unpinTx(ctx, tx, waker, tenantID, variantID, false)
}

// ForceNormalTx moves a variant to the normal lane, whether it was pinned or
// became hot automatically. The isolation level is PinTx's.
func ForceNormalTx(ctx context.Context, tx pgx.Tx, waker Waker, tenantID uuid.UUID, variantID string) error {
	return unpinTx(ctx, tx, waker, tenantID, variantID, true)
}

func unpinTx(ctx context.Context, tx pgx.Tx, waker Waker, tenantID uuid.UUID, variantID string, automatic bool) error {
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
	return waker.InsertTx(ctx, tx, []Stream{{Lane: Hot, Slot: slot}, {Lane: Normal}})
}

// Placement is the wish of a variant's stock.
type Placement struct {
	VariantID string
	Wish      Wish
}

// PlaceTx moves variants of a tenant to the lanes of their wishes: WishHot pins
// the variant, WishAuto removes the pin, and WishNormal makes it normal even if
// it became hot automatically. It neither moves nor locks a variant that is
// where its wish puts it, so another transaction may move that variant before
// tx ends (IsPlaced).
//
// It locks the slots of the others: call it before anything that locks
// requests, stocks or reservations. The transaction must be READ COMMITTED,
// else ErrIsolation.
func PlaceTx(ctx context.Context, tx pgx.Tx, waker Waker, tenantID uuid.UUID, wishes []Placement) error {
	found, err := Lookup(ctx, tx, tenantID, variantsOf(wishes))
	if err != nil {
		return err
	}
	return ForcePlaceTx(ctx, tx, waker, tenantID, slices.DeleteFunc(slices.Clone(wishes), func(p Placement) bool {
		return found[p.VariantID].IsPlaced(p.Wish)
	}))
}

// ForcePlaceTx is PlaceTx that also locks the slots of variants that are where
// their wishes put them: no other transaction moves them until tx ends. The
// isolation level is PlaceTx's.
func ForcePlaceTx(ctx context.Context, tx pgx.Tx, waker Waker, tenantID uuid.UUID, wishes []Placement) error {
	if len(wishes) > 1 {
		if err := LockSlotsTx(ctx, tx, tenantID, variantsOf(wishes)); err != nil {
			return err
		}
	}
	for _, p := range wishes {
		if err := p.moveTx(ctx, tx, waker, tenantID); err != nil {
			return err
		}
	}
	return nil
}

func (p Placement) moveTx(ctx context.Context, tx pgx.Tx, waker Waker, tenantID uuid.UUID) error {
	switch p.Wish {
	case WishHot:
		return PinTx(ctx, tx, waker, tenantID, p.VariantID)
	case WishAuto:
		return UnpinTx(ctx, tx, waker, tenantID, p.VariantID)
	default:
		return ForceNormalTx(ctx, tx, waker, tenantID, p.VariantID)
	}
}

// IsPlaced reports whether a variant is where the wish puts it.
func (v Variant) IsPlaced(wish Wish) bool {
	switch wish {
	case WishHot:
		return v.TakesNew() && v.Pinned
	case WishAuto:
		return !v.TakesNew() || !v.Pinned
	default:
		return !v.TakesNew()
	}
}

func variantsOf(wishes []Placement) []string {
	ids := make([]string, len(wishes))
	for i := range wishes {
		ids[i] = wishes[i].VariantID
	}
	return ids
}
