package lanes

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Placement is the wish of a variant's stock.
type Placement struct {
	VariantID string
	Wish      Wish
}

// Pin makes a variant hot until it is unpinned. Of the requests that are sent
// after the commit, a later one is decided later. Pinning a hot variant leaves
// it in its slot.
func Pin(ctx context.Context, db *pgxpool.Pool, waker Waker, tenantID uuid.UUID, variantID string) error {
	return place(ctx, db, waker, tenantID, Placement{variantID, WishHot})
}

// Unpin removes a pin and moves the variant to the normal lane. Its slot
// decides the requests that were admitted before; then the variant is normal.
// Unpinning a variant that is not pinned changes nothing: a variant that became
// hot automatically stays hot.
func Unpin(ctx context.Context, db *pgxpool.Pool, waker Waker, tenantID uuid.UUID, variantID string) error {
	return place(ctx, db, waker, tenantID, Placement{variantID, WishAuto})
}

func place(ctx context.Context, db *pgxpool.Pool, waker Waker, tenantID uuid.UUID, wish Placement) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return ForcePlaceTx(ctx, tx, waker, tenantID, []Placement{wish}) })
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
// their wishes put them: no other transaction moves them until tx ends. It
// waits for the drains that own the slots. A variant without a slot that is
// pinned gets a slot that no other variant has.
//
// The transaction must be READ COMMITTED, else ErrIsolation: an older snapshot
// may place a variant in a slot that it has left.
func ForcePlaceTx(ctx context.Context, tx pgx.Tx, waker Waker, tenantID uuid.UUID, wishes []Placement) error {
	if len(wishes) == 0 {
		return nil
	}
	var woken []Stream
	err := inSlotsTx(ctx, tx, tenantID, variantsOf(wishes), func(tx pgx.Tx, slots []variantSlot) error {
		woken = nil // of an attempt that was rolled back
		for _, p := range wishes {
			streams, err := p.moveTx(ctx, tx, tenantID, slots)
			if err != nil {
				return fmt.Errorf("move variant %s to lane %s: %w", p.VariantID, p.Wish, err)
			}
			woken = append(woken, streams...)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("place %d variants: %w", len(wishes), err)
	}
	return wakeTx(ctx, tx, waker, woken)
}

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

// unpinSQL edits a variant in the slot that is locked.
const unpinSQL = `
UPDATE hot_variants
SET state = 'leaving', pinned = false, why = NULL, admitted_before = NULL, moved_at = clock_timestamp()
WHERE tenant_id = $1 AND variant_id = $2 AND slot = $3 AND state <> 'leaving' AND (pinned OR $4)`

// moveTx moves a variant under the lock of its slot, if it has one, and returns
// the streams to which that gives work. It returns errMoved if the variant has
// another slot.
func (p Placement) moveTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, slots []variantSlot) (woken []Stream, err error) {
	i := slices.IndexFunc(slots, func(v variantSlot) bool { return v.VariantID == p.VariantID })
	slot := NoSlot
	if i >= 0 {
		slot = slots[i].Slot
	}
	if p.Wish != WishHot {
		if slot == NoSlot {
			return nil, nil
		}
		tag, err := tx.Exec(ctx, unpinSQL, tenantID, p.VariantID, slot, p.Wish == WishNormal)
		if err != nil || tag.RowsAffected() == 0 {
			return nil, err
		}
		return []Stream{{Lane: Hot, Slot: slot}, {Lane: Normal}}, nil
	}
	if slot == NoSlot {
		slot, err = newSlotTx(ctx, tx, nil)
		if err != nil {
			return nil, err
		}
	}
	tag, err := tx.Exec(ctx, pinSQL, tenantID, p.VariantID, slot)
	if err == nil && tag.RowsAffected() == 0 {
		err = errMoved
	}
	return []Stream{{Lane: Hot, Slot: slot}}, err
}

// wakeTx wakes the streams, each once.
func wakeTx(ctx context.Context, tx pgx.Tx, waker Waker, streams []Stream) error {
	slices.SortFunc(streams, func(a, b Stream) int { return cmp.Or(cmp.Compare(a.Lane, b.Lane), cmp.Compare(a.Slot, b.Slot)) })
	streams = slices.Compact(streams)
	if len(streams) == 0 {
		return nil
	}
	return waker.InsertTx(ctx, tx, streams)
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
