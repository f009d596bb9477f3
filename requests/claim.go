package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
)

// Every claim locks queued rows, oldest first, in the order of the sequence, and marks nothing: the transaction that
// claims also finishes them, and one that dies leaves nothing behind. lowWater is a sequence number that no queued row of
// the stream lies at or below.
//
// A claim walks its stream from the mark until it has enough, and asks of each row whether its variant is hot. It asks
// inside a CASE, which the planner can't turn into a join: it would join all that is queued before it takes the oldest
// once many variants are hot, and look a few up among all that their tenants ever asked for.

// Every claim leaves out the requests of the variants in skip; with none, which is usual, nothing is compared.

// NormalMark is a SQL expression: the low-water mark of the normal lane's stream in the row normal, or 0 where the sequence
// is behind it and the stream's own drain has not reset it yet.
const NormalMark = `CASE WHEN normal.low_water > (` + DrawnSQL + `) THEN 0 ELSE normal.low_water END`

const claimSlotSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE r.lane = 'hot' AND r.slot = $1 AND r.sequence > $2 AND r.status = 'queued'
  AND ($4::text[] IS NULL OR r.tenant_id::text || r.variant_id <> ALL ($4))
ORDER BY r.sequence
LIMIT $3
FOR NO KEY UPDATE`

// ClaimSlotTx claims the oldest queued requests of a hot slot's stream. The caller owns the slot. It waits for whoever
// has one of the rows locked, so nothing is overtaken. The transaction must be READ COMMITTED, which entering the slot has
// checked.
func ClaimSlotTx(ctx context.Context, tx pgx.Tx, slot int16, lowWater int64, skip []inventory.Ref, limit int) ([]Request, error) {
	return claim(ctx, tx, claimSlotSQL, slot, lowWater, limit, skipped(skip))
}

const claimMovingSQL = `
WITH candidates AS MATERIALIZED (
    (SELECT r.tenant_id, r.request_id, r.sequence
     FROM reservation_requests r
     WHERE r.lane = 'hot' AND r.slot = $1 AND r.sequence > $2 AND r.status = 'queued'
       AND ($4::text[] IS NULL OR r.tenant_id::text || r.variant_id <> ALL ($4))
     ORDER BY r.sequence
     LIMIT $3)
    UNION ALL
    (SELECT moving.tenant_id, moving.request_id, moving.sequence
     FROM lane_slots normal
     CROSS JOIN LATERAL (
         SELECT r.tenant_id, r.request_id, r.sequence
         FROM reservation_requests r
         WHERE r.lane = normal.lane AND r.slot = normal.slot AND r.sequence > ` + NormalMark + ` AND r.status = 'queued'
           AND ($4::text[] IS NULL OR r.tenant_id::text || r.variant_id <> ALL ($4))
           AND CASE WHEN EXISTS (
                   SELECT
                   FROM hot_variants h
                   WHERE h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id AND h.slot = $1) THEN true END
         ORDER BY r.sequence
         LIMIT $3
     ) moving
     WHERE normal.lane = 'normal' AND normal.slot >= 0)
), oldest AS MATERIALIZED (
    SELECT tenant_id, request_id FROM candidates ORDER BY sequence LIMIT $3
)
SELECT ` + columns + `
FROM reservation_requests r
JOIN oldest USING (tenant_id, request_id)
WHERE r.status = 'queued'
ORDER BY r.sequence
FOR NO KEY UPDATE OF r`

// ClaimMovingTx is ClaimSlotTx for a slot with variants that move between the lanes: it also claims their requests from
// the normal lane's streams, in one order with the slot's own. The transaction must be READ COMMITTED, which entering the
// slot has checked.
func ClaimMovingTx(ctx context.Context, tx pgx.Tx, slot int16, lowWater int64, skip []inventory.Ref, limit int) ([]Request, error) {
	return claim(ctx, tx, claimMovingSQL, slot, lowWater, limit, skipped(skip))
}

const claimNormalSQL = `
WITH claimed AS MATERIALIZED (
    SELECT r.*
    FROM reservation_requests r
    WHERE r.lane = 'normal' AND r.slot = $3 AND r.sequence > $1 AND r.status = 'queued'
      AND ($5::text[] IS NULL OR r.tenant_id::text || r.variant_id <> ALL ($5))
      AND ($6::text[] IS NULL OR r.tenant_id::text || r.variant_id = ANY ($6))
      AND CASE WHEN EXISTS (
              SELECT
              FROM hot_variants h
              WHERE h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id) THEN false ELSE true END
    ORDER BY r.sequence
    LIMIT $2
    FOR NO KEY UPDATE OF r SKIP LOCKED
), cart AS MATERIALIZED (
    SELECT tenant_id, cart_id, max(sequence) AS newest
    FROM claimed
    GROUP BY tenant_id, cart_id
), ahead AS MATERIALIZED (
    SELECT e.tenant_id, e.cart_id, e.variant_id, min(e.sequence) AS oldest
    FROM cart
    JOIN reservation_requests e ON e.tenant_id = cart.tenant_id AND e.cart_id = cart.cart_id
                               AND e.sequence > $4 AND e.sequence < cart.newest
    WHERE e.status = 'queued' AND e.request_id NOT IN (SELECT request_id FROM claimed)
    GROUP BY e.tenant_id, e.cart_id, e.variant_id
)
SELECT ` + columns + `, coalesce(r.sequence > ahead.oldest, false) AS blocked
FROM claimed r
LEFT JOIN ahead ON ahead.tenant_id = r.tenant_id AND ahead.cart_id = r.cart_id AND ahead.variant_id = r.variant_id
ORDER BY r.sequence`

// NormalClaim bounds a claim of the normal lane.
type NormalClaim struct {
	Slot int16
	// LowWater is the mark of the stream, LowestWater the lowest one of the lane's streams.
	LowWater, LowestWater int64
	// Skip are variants whose requests are left. Only, if not nil, is the one variant whose requests are claimed.
	Skip  []inventory.Ref
	Only  *inventory.Ref
	Limit int
}

// ClaimNormalTx claims the oldest requests of a normal stream that no other transaction has locked and whose variant is not
// hot. A request whose cart has an earlier one for the same variant that is not claimed, or in another stream, is left for
// later. more means that others may be left. The transaction must be READ COMMITTED, which acquiring the lease has checked.
func ClaimNormalTx(ctx context.Context, tx pgx.Tx, c NormalClaim) (claimed []Request, more bool, err error) {
	limit, only := c.Limit, []inventory.Ref(nil)
	if c.Only != nil {
		only = []inventory.Ref{*c.Only}
	}
	rows, err := tx.Query(ctx, claimNormalSQL, c.LowWater, limit, c.Slot, c.LowestWater, skipped(c.Skip), skipped(only))
	if err != nil {
		return nil, false, fmt.Errorf("claim: %w", err)
	}
	type locked struct {
		Request
		Blocked bool
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l locked, err error) {
		l.Request, err = scan(row, &l.Blocked)
		return l, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("claim: %w", err)
	}
	claimed = make([]Request, 0, len(all))
	for i := range all {
		if !all[i].Blocked {
			claimed = append(claimed, all[i].Request)
		}
	}
	return claimed, len(all) == limit || len(claimed) < len(all), nil
}

// skipped are the variants in the form that the claims compare; nil for none.
func skipped(variants []inventory.Ref) (texts []string) {
	for _, v := range variants {
		texts = append(texts, v.TenantID.String()+v.VariantID)
	}
	return texts
}

func claim(ctx context.Context, db Querier, sql string, args ...any) ([]Request, error) {
	claimed, err := collect(ctx, db, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("claim: %w", err)
	}
	return claimed, nil
}

const markProcessingSQL = `
UPDATE reservation_requests r
SET status = 'processing', attempts = r.attempts + 1, claim_epoch = r.claim_epoch + 1,
    claim_expires_at = clock_timestamp() + $3, updated_at = clock_timestamp()
WHERE r.tenant_id = $1 AND r.request_id = $2 AND r.status = 'queued'
RETURNING ` + columns

// MarkProcessing begins the careful way for a request that failed by itself: its first visible claim, committed, which
// lasts for the given time. No row: the request was finished meanwhile.
func MarkProcessing(ctx context.Context, db Querier, ref Ref, claimFor time.Duration) ([]Request, error) {
	return claim(ctx, db, markProcessingSQL, ref.TenantID, ref.RequestID, claimFor)
}

// ClaimLapsed is a SQL condition on a request r in isolated retry: its claim has lapsed. So has one that ends much later
// than it can: the clock was set back since it was made, at updated_at, by more than the time that it was made for.
const ClaimLapsed = `(r.claim_expires_at <= (SELECT clock_timestamp())
           OR r.claim_expires_at > (SELECT clock_timestamp()) + 2 * (r.claim_expires_at - r.updated_at))
      AND r.status = 'processing'`

const reclaimSQL = `
WITH lapsed AS MATERIALIZED (
    SELECT r.tenant_id, r.request_id
    FROM reservation_requests r
    WHERE ` + ClaimLapsed + ` AND r.lane = $3
      AND NOT EXISTS (SELECT FROM lane_slots control WHERE control.lane = $3 AND control.slot = -1 AND control.paused)
    ORDER BY r.claim_expires_at
    LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE reservation_requests r
SET attempts = r.attempts + 1, claim_epoch = r.claim_epoch + 1, claim_expires_at = clock_timestamp() + $2,
    updated_at = clock_timestamp()
FROM lapsed
WHERE r.tenant_id = lapsed.tenant_id AND r.request_id = lapsed.request_id
RETURNING ` + columns

// Reclaim claims up to limit processing requests of a lane again whose claim has lapsed: their backoff is over, or who
// had them died. The new epoch shuts the earlier claim out. A paused lane's are left.
func Reclaim(ctx context.Context, db Querier, lane string, limit int, claimFor time.Duration) ([]Request, error) {
	return claim(ctx, db, reclaimSQL, limit, claimFor, lane)
}

const lockClaimSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE r.tenant_id = $1 AND r.request_id = $2 AND r.status = 'processing' AND r.claim_epoch = $3
FOR NO KEY UPDATE`

// LockClaimTx locks a processing request if the claim on it is still the caller's; no row if it is not. It is right at
// every isolation level.
func LockClaimTx(ctx context.Context, tx pgx.Tx, r Request) ([]Request, error) {
	return claim(ctx, tx, lockClaimSQL, r.TenantID, r.RequestID, r.ClaimEpoch)
}

const postponeSQL = `
UPDATE reservation_requests
SET claim_expires_at = clock_timestamp() + $4, updated_at = clock_timestamp()
WHERE tenant_id = $1 AND request_id = $2 AND status = 'processing' AND claim_epoch = $3`

// Postpone lets the caller's claim lapse after the given time, when the request is tried again.
func Postpone(ctx context.Context, db Execer, r Request, backoff time.Duration) error {
	if _, err := db.Exec(ctx, postponeSQL, r.TenantID, r.RequestID, r.ClaimEpoch, backoff); err != nil {
		return fmt.Errorf("postpone request %s: %w", r.RequestID, err)
	}
	return nil
}

const giveBackSQL = `
UPDATE reservation_requests
SET attempts = greatest(attempts - 1, 1), claim_expires_at = clock_timestamp() + $4, updated_at = clock_timestamp()
WHERE tenant_id = $1 AND request_id = $2 AND status = 'processing' AND claim_epoch = $3`

// GiveBack is Postpone for a claim whose attempt an outage ended: it does not count, but for the first.
func GiveBack(ctx context.Context, db Execer, r Request, wait time.Duration) error {
	if _, err := db.Exec(ctx, giveBackSQL, r.TenantID, r.RequestID, r.ClaimEpoch, wait); err != nil {
		return fmt.Errorf("give request %s back: %w", r.RequestID, err)
	}
	return nil
}

const countRetriedSQL = `
SELECT count(*)
FROM (SELECT FROM reservation_requests r WHERE r.claim_expires_at IS NOT NULL AND r.lane = $1 LIMIT $2) AS retried`

// CountRetried returns how many requests of a lane are processing, which is to be tried in isolation, at most limit.
func CountRetried(ctx context.Context, db Querier, lane string, limit int) (int, error) {
	rows, err := db.Query(ctx, countRetriedSQL, lane, limit)
	if err != nil {
		return 0, fmt.Errorf("count the requests of lane %s in isolated retry: %w", lane, err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return 0, fmt.Errorf("count the requests of lane %s in isolated retry: %w", lane, err)
	}
	return n, nil
}
