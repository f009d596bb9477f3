package queues

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/requests"
)

// ErrUnknownLane says that there is no lane of that name.
var ErrUnknownLane = errors.New("queues: unknown lane")

// ErrRateCap says that a rate cap is out of range.
var ErrRateCap = errors.New("queues: a rate cap must be 1 or more, or 0 for none")

// LaneState is how a lane stands, over all tenants and processes.
type LaneState struct {
	Lane string `json:"lane"`
	// Depth counts the undecided requests, up to DepthMax.
	Depth int64 `json:"depth"`
	// OldestAgeSeconds is how long the oldest of them has waited.
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	// RatePerSecond is how many requests were decided a second lately.
	RatePerSecond float64 `json:"rate_per_second"`
	Paused        bool    `json:"paused"`
	// RateCap is how many requests a second may be decided, nil for no cap.
	RateCap *int32 `json:"rate_cap"`
	Slots   int64  `json:"slots"`
}

// DepthMax is the highest depth told; it stands for itself and more.
const DepthMax = 100_000

// latelyDecided is a SQL expression: how many requests per second the lane of the row control decided lately.
const latelyDecided = `CASE WHEN control.window_started_at BETWEEN clock_timestamp() - interval '15 seconds' AND clock_timestamp()
            THEN control.rate ELSE 0 END`

// lanesSQL counts requests in isolated retry separately: other requests do not keep the mark below them.
const lanesSQL = `
WITH retried AS MATERIALIZED (
    SELECT lane, slot, sequence, created_at
    FROM reservation_requests
    WHERE claim_expires_at IS NOT NULL
    LIMIT $1
)
SELECT control.lane, coalesce(sum(waiting.depth), 0)::bigint AS depth,
       greatest(coalesce(extract(epoch FROM clock_timestamp() - min(waiting.oldest)), 0), 0)::double precision AS oldest_age_seconds,
       ` + latelyDecided + ` AS rate_per_second,
       control.paused, control.rate_cap, count(slots.slot) AS slots
FROM lane_slots control
LEFT JOIN lane_slots slots ON slots.lane = control.lane AND slots.slot >= 0
LEFT JOIN LATERAL (
    SELECT count(*) AS depth, min(queued.created_at) AS oldest
    FROM (
        (SELECT r.created_at
         FROM reservation_requests r
         WHERE r.lane = slots.lane AND r.slot = slots.slot AND r.sequence > slots.low_water AND r.status = 'queued'
         ORDER BY r.sequence
         LIMIT $1)
        UNION ALL
        (SELECT retried.created_at FROM retried WHERE retried.lane = slots.lane AND retried.slot = slots.slot)
    ) queued
) waiting ON true
WHERE control.slot = -1
GROUP BY control.lane, control.slot
ORDER BY control.lane`

// Lanes returns how every lane stands.
func Lanes(ctx context.Context, db requests.Querier) ([]LaneState, error) {
	rows, err := db.Query(ctx, lanesSQL, DepthMax)
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	lanes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LaneState])
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	return lanes, nil
}

// LanePatch is a change of a lane's controls; a nil field stays as it is.
type LanePatch struct {
	Paused *bool
	// RateCap is in requests a second over all processes, 1 or more; 0 takes the cap away.
	RateCap *int32
}

// controls are the state of a lane that its audit rows tell.
type controls struct {
	Lane    string `json:"lane"`
	Paused  bool   `json:"paused"`
	RateCap *int32 `json:"rate_cap"`
}

func (c controls) with(patch LanePatch) controls {
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

const lockControlsSQL = `SELECT lane, paused, rate_cap FROM lane_slots WHERE lane = $1 AND slot = -1 FOR NO KEY UPDATE`

// controlSQL empties the token bucket where the cap changes: what was saved under another one, or under none, is no credit.
const controlSQL = `
UPDATE lane_slots
SET paused = $2, rate_cap = $3::integer,
    tokens = CASE WHEN rate_cap IS DISTINCT FROM $3 THEN 0 ELSE tokens END,
    refilled_at = CASE WHEN rate_cap IS DISTINCT FROM $3 THEN clock_timestamp() ELSE refilled_at END
WHERE lane = $1 AND slot = -1`

// Control changes a lane's controls for all processes: each drain reads them as it begins, so they hold within a tick, and
// a drain under way is the last. A change is one audit row with action "lane.controlled", whose target is
// LaneTarget(lane); what is so already changes and records nothing.
//
// Errors: ErrUnknownLane; ErrRateCap for a negative cap.
func Control(ctx context.Context, db *pgxpool.Pool, lane string, patch LanePatch, origin audit.Origin) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error { return ControlTx(ctx, tx, lane, patch, origin) })
}

// ControlTx is Control in the caller's transaction. It locks the lane's controls until that ends: drains under a rate cap
// wait for it. It is right at every isolation level.
func ControlTx(ctx context.Context, tx pgx.Tx, lane string, patch LanePatch, origin audit.Origin) error {
	if patch.RateCap != nil && *patch.RateCap < 0 {
		return fmt.Errorf("control lane %s: %w, not %d", lane, ErrRateCap, *patch.RateCap)
	}
	rows, err := tx.Query(ctx, lockControlsSQL, lane)
	if err != nil {
		return fmt.Errorf("control lane %s: %w", lane, err)
	}
	before, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[controls])
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("control lane %q: %w", lane, ErrUnknownLane)
	}
	if err != nil {
		return fmt.Errorf("control lane %s: %w", lane, err)
	}
	was, err := json.Marshal(before)
	if err != nil {
		return fmt.Errorf("control lane %s: %w", lane, err)
	}
	after := before.with(patch)
	is, err := json.Marshal(after)
	if err != nil {
		return fmt.Errorf("control lane %s: %w", lane, err)
	}
	if bytes.Equal(was, is) {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(controlSQL, lane, after.Paused, after.RateCap)
	audit.Queue(b, []audit.Entry{{TargetID: LaneTarget(lane), Action: "lane.controlled", Origin: origin, Before: was, After: is}})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("control lane %s: %w", lane, err)
	}
	return nil
}

// LaneTarget is the lane's id in the audit log. Lanes belong to no tenant, so its rows stand under the zero one.
func LaneTarget(lane string) uuid.UUID { return audit.TargetOf(uuid.Nil, "lane", lane) }

// lockMakingSQL lets one transaction at a time make slots.
const lockMakingSQL = `SELECT pg_advisory_xact_lock('lane_slots'::regclass::oid::integer, 0)`

// makeSlotSQL makes one more slot. No row: there are as many as there can be.
const makeSlotSQL = `
INSERT INTO lane_slots (lane, slot)
SELECT $1, max(slot) + 1
FROM lane_slots
WHERE lane = $1
HAVING max(slot) < 32767
RETURNING slot`

// ErrSlots means that a lane has as many slots as it can have, 32,768.
var ErrSlots = errors.New("queues: no slot is left")

// MakeSlotTx makes one more slot of a lane. Another transaction that makes slots waits until this one ends. It is right at
// every isolation level. Errors: ErrSlots.
func MakeSlotTx(ctx context.Context, tx pgx.Tx, lane string) (slot int16, err error) {
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

func slotsBy(ctx context.Context, db requests.Querier, sql, lane string) ([]int16, error) {
	rows, err := db.Query(ctx, sql, lane)
	if err != nil {
		return nil, fmt.Errorf("read the slots of lane %s: %w", lane, err)
	}
	slots, err := pgx.CollectRows(rows, pgx.RowTo[int16])
	if err != nil {
		return nil, fmt.Errorf("read the slots of lane %s: %w", lane, err)
	}
	return slots, nil
}

// noteRateSQL ends a window after 2 s, and at once one that begins in the future, where a clock that was set back leaves it.
const noteRateSQL = `
UPDATE lane_slots
SET decided = decided + $2,
    rate = CASE WHEN window_started_at < clock_timestamp() - interval '2 seconds'
                THEN (window_decided + $2) / extract(epoch FROM clock_timestamp() - window_started_at) ELSE rate END,
    window_decided = CASE WHEN ` + windowGoesOn + ` THEN window_decided + $2 ELSE 0 END,
    window_started_at = CASE WHEN ` + windowGoesOn + ` THEN window_started_at ELSE clock_timestamp() END
WHERE lane = $1 AND slot = -1`

const windowGoesOn = `window_started_at BETWEEN clock_timestamp() - interval '2 seconds' AND clock_timestamp()`

// noteRate adds to the lane's measured rate what this process decided since the last call.
func (d *Drain) noteRate(ctx context.Context) error {
	decided := d.decided.Swap(0)
	if decided == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	if _, err := d.db.Exec(ctx, noteRateSQL, d.lane, decided); err != nil {
		return fmt.Errorf("note the rate of lane %s: %w", d.lane, err)
	}
	return nil
}

const streamsSQL = `SELECT lane, slot FROM lane_slots WHERE slot >= 0 ORDER BY lane, slot`

// Streams returns every stream there is: each slot of each lane.
func Streams(ctx context.Context, db requests.Querier) ([]requests.Wake, error) {
	rows, err := db.Query(ctx, streamsSQL)
	if err != nil {
		return nil, fmt.Errorf("read the streams: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[requests.Wake])
}
