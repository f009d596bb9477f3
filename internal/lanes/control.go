package lanes

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// ErrUnknown means that there is no lane of that name.
var ErrUnknown = errors.New("lanes: unknown lane")

// ErrRateCap means that a rate cap is out of range.
var ErrRateCap = errors.New("lanes: a rate cap must be 1 or more, or 0 for none")

// Controls is a SQL table expression with one row per lane: lane, paused,
// rate_cap, and what RecentRate reads.
const Controls = `(SELECT lane, paused, rate_cap, rate, window_started_at FROM lane_slots WHERE slot = -1)`

// RecentRate is a SQL expression: how many requests per second the lane of
// the row control of Controls decided lately.
const RecentRate = `CASE WHEN control.window_started_at BETWEEN clock_timestamp() - interval '15 seconds' AND clock_timestamp()
            THEN control.rate ELSE 0 END`

// controlRow is a SQL condition on lane_slots: the row with the controls of the
// lane $1.
const controlRow = `lane = $1 AND slot = -1`

// Patch is a change of a lane's controls; a nil field stays as it is.
type Patch struct {
	Paused *bool
	// RateCap is in requests per second over all processes, 1 or more; 0
	// removes the cap.
	RateCap *int32
}

// controls are the state of a lane that its audit rows record.
type controls struct {
	Lane    Lane   `json:"lane"`
	Paused  bool   `json:"paused"`
	RateCap *int32 `json:"rate_cap"`
}

func (c controls) with(patch Patch) controls {
	if patch.Paused != nil {
		c.Paused = *patch.Paused
	}
	switch {
	case patch.RateCap == nil:
	case *patch.RateCap == 0:
		c.RateCap = nil
	default:
		c.RateCap = patch.RateCap
	}
	return c
}

const lockControlsSQL = `SELECT lane, paused, rate_cap FROM lane_slots WHERE ` + controlRow + ` FOR NO KEY UPDATE`

// controlSQL empties the token bucket if the cap changes: tokens that were
// saved under another cap, or under none, are no credit.
const controlSQL = `
UPDATE lane_slots
SET paused = $2, rate_cap = $3::integer,
    tokens = CASE WHEN rate_cap IS DISTINCT FROM $3 THEN 0 ELSE tokens END,
    refilled_at = CASE WHEN rate_cap IS DISTINCT FROM $3 THEN clock_timestamp() ELSE refilled_at END
WHERE ` + controlRow

// Control changes a lane's controls for all processes. Each drain reads the
// controls as it begins, so the change applies within a tick, and only drains
// under way ignore it. A change is one audit row with action "lane.controlled",
// whose target is Target(lane). A patch that changes nothing records nothing.
//
// Errors: ErrUnknown; ErrRateCap for a negative cap.
func Control(ctx context.Context, db *pgxpool.Pool, lane Lane, patch Patch, origin audit.Origin) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return ControlTx(ctx, tx, lane, patch, origin) })
}

// ControlTx is Control in the caller's transaction. It locks the lane's
// controls until that ends: drains under a rate cap wait for it. It may be
// called at every isolation level.
func ControlTx(ctx context.Context, tx pgx.Tx, lane Lane, patch Patch, origin audit.Origin) error {
	if patch.RateCap != nil && *patch.RateCap < 0 {
		return fmt.Errorf("control lane %s: %w, not %d", lane, ErrRateCap, *patch.RateCap)
	}
	before, err := pg.SelectOne(ctx, tx, pgx.RowToStructByPos[controls], lockControlsSQL, lane)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("control lane %q: %w", lane, ErrUnknown)
	}
	if err != nil {
		return fmt.Errorf("control lane %s: %w", lane, err)
	}
	after := before.with(patch)
	was, is := encode(before), encode(after)
	if bytes.Equal(was, is) {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(controlSQL, lane, after.Paused, after.RateCap)
	audit.Queue(b, []audit.Entry{{TargetID: Target(lane), Action: "lane.controlled", Origin: origin, Before: was, After: is}})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("control lane %s: %w", lane, err)
	}
	return nil
}

// Target is the lane's id in the audit log. Lanes belong to no tenant, so their
// rows have the zero tenant.
func Target(lane Lane) uuid.UUID { return audit.TargetOf(uuid.Nil, "lane", string(lane)) }

// recordRateSQL ends a window after 2 s. It also ends a window that begins in
// the future, because the clock was set back.
const recordRateSQL = `
UPDATE lane_slots
SET decided = decided + $2,
    rate = CASE WHEN window_started_at < clock_timestamp() - interval '2 seconds'
                THEN (window_decided + $2) / extract(epoch FROM clock_timestamp() - window_started_at) ELSE rate END,
    window_decided = CASE WHEN ` + windowIsOpen + ` THEN window_decided + $2 ELSE 0 END,
    window_started_at = CASE WHEN ` + windowIsOpen + ` THEN window_started_at ELSE clock_timestamp() END
WHERE ` + controlRow

const windowIsOpen = `window_started_at BETWEEN clock_timestamp() - interval '2 seconds' AND clock_timestamp()`

// RecordRate adds the requests that a process has decided since its last call
// to the lane's measured rate.
func RecordRate(ctx context.Context, db *pgxpool.Pool, lane Lane, decided int64) error {
	if _, err := db.Exec(ctx, recordRateSQL, lane, decided); err != nil {
		return fmt.Errorf("record the rate of lane %s: %w", lane, err)
	}
	return nil
}

// takeTokensSQL gives no tokens for a time that lies in the future, where a
// clock that was set back leaves the last refill, and refills from the present
// time on.
const takeTokensSQL = `
WITH bucket AS MATERIALIZED (
    SELECT lane, slot,
           greatest(0, least(rate_cap, tokens + rate_cap * greatest(0, extract(epoch FROM clock_timestamp() - refilled_at)))) AS tokens
    FROM lane_slots
    WHERE ` + controlRow + ` AND rate_cap IS NOT NULL
    FOR NO KEY UPDATE
)
UPDATE lane_slots s
SET tokens = bucket.tokens - least(floor(bucket.tokens), $2), refilled_at = clock_timestamp()
FROM bucket
WHERE s.lane = bucket.lane AND s.slot = bucket.slot
RETURNING least(floor(bucket.tokens), $2)::integer`

// QueueTakeTokens adds to b the statement that takes the tokens of up to limit
// requests from the lane's bucket, which fills at the rate cap and holds one
// second of it. It calls granted with the number of tokens, possibly 0, unless
// the lane has no cap. It locks the lane's controls until the transaction ends.
func QueueTakeTokens(b *pgx.Batch, lane Lane, limit int, granted func(tokens int)) {
	b.Queue(takeTokensSQL, lane, limit).Query(func(rows pgx.Rows) error {
		var tokens int
		_, err := pgx.ForEachRow(rows, []any{&tokens}, func() error {
			granted(tokens)
			return nil
		})
		return err
	})
}

const returnTokensSQL = `UPDATE lane_slots SET tokens = tokens + $2 WHERE ` + controlRow + ` AND rate_cap IS NOT NULL`

// QueueReturnTokens adds to b the statement that returns n unused tokens. It
// locks the lane's controls until the transaction ends.
func QueueReturnTokens(b *pgx.Batch, lane Lane, n int) {
	b.Queue(returnTokensSQL, lane, n)
}
