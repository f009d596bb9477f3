package requestrows

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/requests"
)

// Every claim locks queued rows in the order of the sequence, oldest first, and
// does not mark them. The transaction that claims the rows also finishes them,
// so a transaction that dies leaves nothing behind. lowWater is a sequence
// number at or below which the stream has no queued row.
//
// A claim reads its stream from the mark until it has enough rows, and checks
// for each row whether its variant is hot. The check is inside a CASE, which
// the planner can't turn into a join. With many hot variants, such a join would
// read all queued rows before it took the oldest. With few, it would search all
// requests that their tenants ever made.

// Skip is what a claim leaves out: the requests for a variant, or, with a
// CartID, those of one cart for the variant.
type Skip struct {
	inventory.Ref
	CartID string
}

// text is the form that a claim compares. An id has no control characters, so
// the newline separates.
func (s Skip) text() string {
	text := s.TenantID.String() + s.VariantID
	if s.CartID != "" {
		text += "\n" + s.CartID
	}
	return text
}

// notSkipped is the condition of a claim whose $4 are the texts of what it
// leaves out. If that is NULL, as usual, the claim compares nothing.
const notSkipped = `($4::text[] IS NULL OR r.tenant_id::text || r.variant_id <> ALL ($4)
           AND r.tenant_id::text || r.variant_id || E'\n' || r.cart_id <> ALL ($4))`

const claimSlotSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE r.lane = 'hot' AND r.slot = $1 AND r.sequence > $2 AND r.status = 'queued'
  AND ` + notSkipped + `
ORDER BY r.sequence
LIMIT $3
FOR NO KEY UPDATE`

// ClaimSlotTx claims the oldest queued requests of a hot slot's stream. The
// caller has the slot's lease. If another transaction has locked one of the
// rows, the claim waits for it, so no request overtakes another.
//
// The transaction must be READ COMMITTED, which acquiring the lease has
// checked.
func ClaimSlotTx(ctx context.Context, tx pgx.Tx, slot int16, lowWater int64, skip []Skip, limit int) ([]requests.Request, error) {
	return claim(ctx, tx, claimSlotSQL, slot, lowWater, limit, texts(skip))
}

const claimMovingSQL = `
WITH candidates AS MATERIALIZED (
    (SELECT r.tenant_id, r.request_id, r.sequence
     FROM reservation_requests r
     WHERE r.lane = 'hot' AND r.slot = $1 AND r.sequence > $2 AND r.status = 'queued'
       AND ` + notSkipped + `
     ORDER BY r.sequence
     LIMIT $3)
    UNION ALL
    (SELECT moving.tenant_id, moving.request_id, moving.sequence
     FROM ` + lanes.ParallelSlots + ` parallel
     CROSS JOIN LATERAL (
         SELECT r.tenant_id, r.request_id, r.sequence
         FROM reservation_requests r
         WHERE r.lane = parallel.lane AND r.slot = parallel.slot AND r.sequence > ` + lanes.ParallelMark + ` AND r.status = 'queued'
           AND ` + notSkipped + `
           AND CASE WHEN EXISTS (
                   SELECT
                   FROM hot_variants h
                   WHERE h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id AND h.slot = $1) THEN true END
         ORDER BY r.sequence
         LIMIT $3
     ) moving)
), oldest AS MATERIALIZED (
    SELECT tenant_id, request_id FROM candidates ORDER BY sequence LIMIT $3
)
SELECT ` + columns + `
FROM reservation_requests r
JOIN oldest USING (tenant_id, request_id)
WHERE r.status = 'queued'
ORDER BY r.sequence
FOR NO KEY UPDATE OF r`

// ClaimMovingTx is ClaimSlotTx for a slot with variants that move between the
// lanes. It also claims their requests from the normal lane's streams, in one
// order with the slot's own.
//
// The transaction must be READ COMMITTED, which acquiring the lease has
// checked.
func ClaimMovingTx(ctx context.Context, tx pgx.Tx, slot int16, lowWater int64, skip []Skip, limit int) ([]requests.Request, error) {
	return claim(ctx, tx, claimMovingSQL, slot, lowWater, limit, texts(skip))
}

const claimNormalSQL = `
WITH claimed AS MATERIALIZED (
    SELECT r.*
    FROM reservation_requests r
    WHERE r.lane = $7 AND r.slot = $3 AND r.sequence > $1 AND r.status = 'queued'
      AND ` + notSkipped + `
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
    JOIN reservation_requests e ON same_holder(e.tenant_id, e.cart_id, cart.tenant_id, cart.cart_id)
                               AND e.sequence > $5 AND e.sequence < cart.newest
    WHERE e.status = 'queued' AND e.request_id NOT IN (SELECT request_id FROM claimed)
    GROUP BY e.tenant_id, e.cart_id, e.variant_id
)
SELECT ` + columns + `, coalesce(r.sequence > ahead.oldest, false) AS blocked
FROM claimed r
LEFT JOIN ahead ON ahead.tenant_id = r.tenant_id AND ahead.cart_id = r.cart_id AND ahead.variant_id = r.variant_id
ORDER BY r.sequence`

// NormalClaim bounds a claim of the normal lane, or of another lane whose
// drains work on one slot in parallel.
type NormalClaim struct {
	Stream lanes.Stream
	// LowWater is the low-water mark of the stream. LowestWater is the lowest
	// mark of the streams of such lanes.
	LowWater, LowestWater int64
	// Skip are the requests that are not claimed. Only, if not nil, is the one
	// variant whose requests are claimed.
	Skip  []Skip
	Only  *inventory.Ref
	Limit int
}

// ClaimNormalTx claims the oldest requests of a normal stream that no other
// transaction has locked and whose variant is not hot. It leaves a request for
// later if its cart has an earlier request for the same variant that is not
// claimed, or is in another stream. more means that the stream may have more
// requests to claim.
//
// The transaction must be READ COMMITTED, which acquiring the lease has
// checked.
func ClaimNormalTx(ctx context.Context, tx pgx.Tx, c NormalClaim) (claimed []requests.Request, more bool, err error) {
	limit, only := c.Limit, []Skip(nil)
	if c.Only != nil {
		only = []Skip{{Ref: *c.Only}}
	}
	rows, err := tx.Query(ctx, claimNormalSQL, c.LowWater, limit, c.Stream.Slot, texts(c.Skip), c.LowestWater, texts(only), c.Stream.Lane)
	if err != nil {
		return nil, false, fmt.Errorf("claim: %w", err)
	}
	type locked struct {
		requests.Request
		Blocked bool
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l locked, err error) {
		l.Request, err = scan(row, &l.Blocked)
		return l, err
	})
	if err != nil {
		return nil, false, fmt.Errorf("claim: %w", err)
	}
	claimed = make([]requests.Request, 0, len(all))
	for i := range all {
		if !all[i].Blocked {
			claimed = append(claimed, all[i].Request)
		}
	}
	return claimed, len(all) == limit || len(claimed) < len(all), nil
}

// texts returns the texts of what a claim compares; nil for none.
func texts(skip []Skip) (texts []string) {
	for _, s := range skip {
		texts = append(texts, s.text())
	}
	return texts
}

func claim(ctx context.Context, db Querier, sql string, args ...any) ([]requests.Request, error) {
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
WHERE r.tenant_id = $1 AND r.request_id = $2 AND r.status IN ('queued', 'waiting')
RETURNING ` + columns

// MarkProcessing begins the isolated retry of a request that failed on its own.
// It makes the first visible claim, which lasts for claimFor. It returns no row
// if the request was finished meanwhile.
func MarkProcessing(ctx context.Context, db Querier, ref Ref, claimFor time.Duration) ([]requests.Request, error) {
	return claim(ctx, db, markProcessingSQL, ref.TenantID, ref.RequestID, claimFor)
}

// ClaimLapsed is a SQL condition on a request r in isolated retry: its claim
// has lapsed. A claim that ends much later than it can has lapsed too. The
// clock was then set back since the claim was made, at updated_at, by more than
// the claim's duration.
const ClaimLapsed = `(r.claim_expires_at <= (SELECT clock_timestamp())
           OR r.claim_expires_at > (SELECT clock_timestamp()) + 2 * (r.claim_expires_at - r.updated_at))
      AND r.status = 'processing'`

const reclaimSQL = `
WITH lapsed AS MATERIALIZED (
    SELECT r.tenant_id, r.request_id
    FROM reservation_requests r
    WHERE ` + ClaimLapsed + ` AND r.lane = $3
      AND NOT EXISTS (SELECT FROM ` + lanes.Controls + ` control WHERE control.lane = $3 AND control.paused)
    ORDER BY r.claim_expires_at
    LIMIT $1
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE reservation_requests r
SET attempts = least(r.attempts, 32766) + 1, claim_epoch = r.claim_epoch + 1, claim_expires_at = clock_timestamp() + $2,
    updated_at = clock_timestamp()
FROM lapsed
WHERE r.tenant_id = lapsed.tenant_id AND r.request_id = lapsed.request_id
RETURNING ` + columns

// Reclaim claims up to limit processing requests of a lane whose claim has
// lapsed, because their backoff is over or the process that had claimed them
// died. The new epoch invalidates the earlier claim. The requests of a paused
// lane are not claimed. Attempts stay at the highest number of their type once
// they reach it: a statement that failed would claim no other request either.
func Reclaim(ctx context.Context, db Querier, lane lanes.Lane, limit int, claimFor time.Duration) ([]requests.Request, error) {
	return claim(ctx, db, reclaimSQL, limit, claimFor, lane)
}

const lockClaimSQL = `
SELECT ` + columns + `
FROM reservation_requests r
WHERE r.tenant_id = $1 AND r.request_id = $2 AND r.status = 'processing' AND r.claim_epoch = $3
FOR NO KEY UPDATE`

// LockClaimTx locks a processing request if the claim on it is still the
// caller's, and returns no row otherwise. It is correct at every isolation
// level.
func LockClaimTx(ctx context.Context, tx pgx.Tx, r requests.Request) ([]requests.Request, error) {
	return claim(ctx, tx, lockClaimSQL, r.TenantID, r.RequestID, r.ClaimEpoch)
}

const postponeSQL = `
UPDATE reservation_requests
SET claim_expires_at = clock_timestamp() + $4, updated_at = clock_timestamp()
WHERE tenant_id = $1 AND request_id = $2 AND status = 'processing' AND claim_epoch = $3`

// Postpone makes the caller's claim lapse after backoff. The request is then
// tried again.
func Postpone(ctx context.Context, db execer, r requests.Request, backoff time.Duration) error {
	if _, err := db.Exec(ctx, postponeSQL, r.TenantID, r.RequestID, r.ClaimEpoch, backoff); err != nil {
		return fmt.Errorf("postpone request %s: %w", r.RequestID, err)
	}
	return nil
}

const requeueSQL = `
UPDATE reservation_requests
SET attempts = greatest(attempts - 1, 1), claim_expires_at = clock_timestamp() + $4, updated_at = clock_timestamp()
WHERE tenant_id = $1 AND request_id = $2 AND status = 'processing' AND claim_epoch = $3`

// Requeue is Postpone for a claim whose attempt an outage ended. The attempt
// does not count, unless it is the first.
func Requeue(ctx context.Context, db execer, r requests.Request, wait time.Duration) error {
	if _, err := db.Exec(ctx, requeueSQL, r.TenantID, r.RequestID, r.ClaimEpoch, wait); err != nil {
		return fmt.Errorf("requeue request %s: %w", r.RequestID, err)
	}
	return nil
}

const countUnfinishedSQL = `
SELECT count(*)
FROM (
    (SELECT 1 FROM reservation_requests r WHERE r.claim_expires_at IS NOT NULL AND r.lane = $1 LIMIT $2)
    UNION ALL
    (SELECT 1
     FROM lane_slots s
     CROSS JOIN LATERAL (
         SELECT
         FROM reservation_requests r
         WHERE r.lane = s.lane AND r.slot = s.slot AND r.sequence > s.low_water AND r.status = 'queued'
         ORDER BY r.sequence
         LIMIT $2
     ) queued
     WHERE s.lane = $1
     LIMIT $2)
    LIMIT $2
) AS unfinished`

// CountUnfinished returns how many requests of a lane are queued or in isolated
// retry, at most limit.
func CountUnfinished(ctx context.Context, db Querier, lane lanes.Lane, limit int) (int, error) {
	rows, err := db.Query(ctx, countUnfinishedSQL, lane, limit)
	if err != nil {
		return 0, fmt.Errorf("count the unfinished requests of lane %s: %w", lane, err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
	if err != nil {
		return 0, fmt.Errorf("count the unfinished requests of lane %s: %w", lane, err)
	}
	return n, nil
}
