package hot

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/requests"
)

const slotOfSQL = `
SELECT coalesce(
    (SELECT slot FROM hot_variants WHERE tenant_id = $1 AND variant_id = $2),
    (SELECT $3::bigint % greatest(count(*), 1) FROM lane_slots WHERE lane = 'hot' AND slot >= 0))`

const lockSlotSQL = `SELECT slot FROM lane_slots WHERE lane = 'hot' AND slot = $1 FOR NO KEY UPDATE`

const pinSQL = `
INSERT INTO hot_variants AS h (tenant_id, variant_id, slot, pinned)
VALUES ($1, $2, $3, true)
ON CONFLICT (tenant_id, variant_id) DO UPDATE
SET pinned = true, why = NULL, horizon = NULL, moved_at = clock_timestamp(),
    state = CASE WHEN h.state = 'leaving' THEN 'entering' ELSE h.state END`

// Pin makes a variant hot until it is unpinned: from the commit on, a request for it that is sent later is decided
// later. Pinning a hot variant changes nothing.
func Pin(ctx context.Context, db *pgxpool.Pool, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return PinTx(ctx, tx, ringer, tenantID, variantID) })
}

// PinTx is Pin in the caller's transaction. It locks the variant's slot, which waits for the drain that owns it: call it
// before anything that locks requests, stocks or reservations, and LockSlotsTx before pinning several.
func PinTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	slot, err := lockSlotTx(ctx, tx, tenantID, variantID)
	if err != nil {
		return fmt.Errorf("pin variant %s: %w", variantID, err)
	}
	if _, err := tx.Exec(ctx, pinSQL, tenantID, variantID, slot); err != nil {
		return fmt.Errorf("pin variant %s: %w", variantID, err)
	}
	return ringer.RingTx(ctx, tx, []requests.Wake{{Lane: requests.Hot, Slot: slot}})
}

const unpinSQL = `
UPDATE hot_variants
SET state = 'leaving', pinned = false, why = NULL, horizon = NULL, moved_at = clock_timestamp()
WHERE tenant_id = $1 AND variant_id = $2 AND state <> 'leaving' AND (pinned OR $3)`

// Unpin takes a pin away and sends the variant back to the normal lane. Its slot decides what was admitted before; then the
// variant is normal. Unpinning a variant that is not pinned changes nothing: what is hot by itself stays so.
func Unpin(ctx context.Context, db *pgxpool.Pool, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return UnpinTx(ctx, tx, ringer, tenantID, variantID) })
}

// UnpinTx is Unpin in the caller's transaction. It locks the variant's slot; see PinTx.
func UnpinTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	return unpinTx(ctx, tx, ringer, tenantID, variantID, false)
}

// ExpelTx is UnpinTx for a variant that is to be normal, whether it was pinned or became hot by itself.
func ExpelTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string) error {
	return unpinTx(ctx, tx, ringer, tenantID, variantID, true)
}

func unpinTx(ctx context.Context, tx pgx.Tx, ringer requests.Ringer, tenantID uuid.UUID, variantID string, automatic bool) error {
	slot, err := lockSlotTx(ctx, tx, tenantID, variantID)
	if err != nil {
		return fmt.Errorf("unpin variant %s: %w", variantID, err)
	}
	tag, err := tx.Exec(ctx, unpinSQL, tenantID, variantID, automatic)
	if err != nil {
		return fmt.Errorf("unpin variant %s: %w", variantID, err)
	}
	if tag.RowsAffected() == 0 {
		return nil
	}
	return ringer.RingTx(ctx, tx, []requests.Wake{{Lane: requests.Hot, Slot: slot}, {Lane: requests.Normal}})
}

// lockSlotTx finds the variant's slot, the one it has or the one its name falls to, and locks it.
func lockSlotTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantID string) (slot int16, err error) {
	if err := tx.QueryRow(ctx, slotOfSQL, tenantID, variantID, hashOf(tenantID, variantID)).Scan(&slot); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, lockSlotSQL, slot)
	return slot, err
}

const lockSlotsSQL = `
SELECT s.slot
FROM lane_slots s
WHERE s.lane = 'hot' AND s.slot IN (
    SELECT coalesce(h.slot, v.hash % greatest(made.slots, 1))
    FROM unnest($2::text[], $3::bigint[]) AS v (variant_id, hash)
    CROSS JOIN (SELECT count(*) AS slots FROM lane_slots WHERE lane = 'hot' AND slot >= 0) AS made
    LEFT JOIN hot_variants h ON h.tenant_id = $1 AND h.variant_id = v.variant_id)
ORDER BY s.slot
FOR NO KEY UPDATE OF s`

// LockSlotsTx locks the slots of the variants, in order. Who pins or unpins several in one transaction calls it first:
// one after the other they would lock their slots in any order, and two who do so can wait for each other.
func LockSlotsTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, variantIDs []string) error {
	hashes := make([]int64, len(variantIDs))
	for i, id := range variantIDs {
		hashes[i] = hashOf(tenantID, id)
	}
	if _, err := tx.Exec(ctx, lockSlotsSQL, tenantID, variantIDs, hashes); err != nil {
		return fmt.Errorf("lock the slots of %d variants: %w", len(variantIDs), err)
	}
	return nil
}

func hashOf(tenantID uuid.UUID, variantID string) int64 {
	h := fnv.New32a()
	_, _ = h.Write(append(tenantID[:], variantID...)) // a hash never fails
	return int64(h.Sum32())
}
