package queues

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Load estimates the undecided requests of the lanes, publishes the estimate, and
// reads the last published one. Lanes that run publish it after changes. An
// intake reads it, and publishes it if no lane has for a while.
type Load struct {
	db     *pgxpool.Pool
	made   time.Time
	failed atomic.Int64 // when this process last failed to count, in nanoseconds since made; 0: never
}

// NewLoad returns the load of all lanes.
func NewLoad(db *pgxpool.Pool) *Load { return &Load{db: db, made: time.Now()} }

const (
	// publishEvery is how often a running lane publishes the load, after
	// changes.
	publishEvery = 250 * time.Millisecond
	// publishTimeout bounds one count. After a count that fails, this process
	// does not count for failurePause.
	publishTimeout, failurePause = 5 * time.Second, 20 * time.Second
)

// countSettingsSQL makes the planner read each part of a stream in the order of
// its index, and join the rows that were read by hash. The commit does not wait
// for the disk, because a load that a crash of the server loses is counted again.
const countSettingsSQL = `
SELECT set_config('enable_sort', 'off', true), set_config('enable_nestloop', 'off', true), set_config('enable_hashjoin', 'on', true),
       set_config('jit', 'off', true), set_config('synchronous_commit', 'off', true)`

// retried is a SQL condition on reservation_requests: the request is in isolated
// retry. The planner expects few rows to be within two bounds, also before the
// table is first analysed, and so reads them by their index.
const retried = `claim_expires_at BETWEEN '-infinity' AND 'infinity'`

// waitingRequests is the beginning of a SQL statement. Its CTE waiting has the
// undecided requests (lane, slot, tenant_id, depth, oldest).
//
// Of each stream it reads the first 250 requests above the low-water mark and the
// last 250. If there are more, the rest is estimated. Each sequence number leads to the first
// request at or above it, by whose distance from the request before it is
// divided; the sum of these fractions over all numbers is the number of requests.
// The sum is estimated from one number of each of about 320 parts (stratified
// sampling; the estimator is Hansen and Hurwitz's, 1943). Three of four parts are
// of equal length. The others shorten exponentially towards the end of the
// stream, because where a mark is held back, the end is what waits. So the cost
// depends neither on how many wait nor on how many finished requests the mark
// has not passed. If several streams are that long, each has fewer parts, at
// least 32.
//
// It also counts requests in isolated retry, at any mark of their stream. A
// request in the normal lane for a variant that is moving is decided by the
// variant's hot slot alone, and counts there.
const waitingRequests = `
WITH retried AS MATERIALIZED (
    SELECT lane, slot, tenant_id, variant_id, created_at
    FROM reservation_requests
    WHERE ` + retried + `
    LIMIT 1000
), first AS MATERIALIZED (
    SELECT s.lane, s.slot, r.*
    FROM ` + lanes.Slots + ` s
    CROSS JOIN LATERAL (
        SELECT r.sequence, r.status, r.tenant_id, r.variant_id, r.created_at
        FROM reservation_requests r
        WHERE r.lane = s.lane AND r.slot = s.slot AND r.sequence > s.low_water
        ORDER BY r.sequence
        LIMIT 250
    ) r
), last AS MATERIALIZED (
    SELECT beyond.lane, beyond.slot, beyond.low, r.*
    FROM (SELECT lane, slot, max(sequence) AS low FROM first GROUP BY lane, slot HAVING count(*) = 250) beyond
    CROSS JOIN LATERAL (
        SELECT r.sequence, r.status, r.tenant_id, r.variant_id, r.created_at
        FROM reservation_requests r
        WHERE r.lane = beyond.lane AND r.slot = beyond.slot AND r.sequence > beyond.low
        ORDER BY r.sequence DESC
        LIMIT 250
    ) r
), rest AS MATERIALIZED (
    SELECT lane, slot, low, min(sequence) - 1 AS high, greatest(24, 240 / count(*) OVER ()) AS parts
    FROM last
    GROUP BY lane, slot, low
    HAVING count(*) = 250 AND low < min(sequence) - 1
), part AS MATERIALIZED (
    SELECT rest.lane, rest.slot, rest.high AS last, boundary.at AS high, boundary.at - lag(boundary.at) OVER (PARTITION BY rest.lane, rest.slot ORDER BY boundary.at) AS length,
           row_number() OVER () * 617 % 1000 AS place -- in thousandths, spread evenly
    FROM rest
    CROSS JOIN LATERAL (
        SELECT rest.low + (rest.high - rest.low) * n / rest.parts FROM generate_series(0, rest.parts) AS n
        UNION
        SELECT rest.high - power((rest.high - rest.low)::double precision, 3 * n / rest.parts::double precision)::bigint FROM generate_series(0, rest.parts / 3) AS n
    ) AS boundary (at)
), sampled AS MATERIALIZED (
    SELECT part.lane, part.slot, r.*,
           part.length::double precision / (r.sequence - (SELECT max(earlier.sequence)
                                                 FROM reservation_requests earlier
                                                 WHERE earlier.lane = part.lane AND earlier.slot = part.slot AND earlier.sequence < number.at)) AS weight
    FROM part
    CROSS JOIN LATERAL (SELECT part.high - part.length * part.place / 1000) AS number (at)
    CROSS JOIN LATERAL (
        SELECT r.sequence, r.status, r.tenant_id, r.variant_id, r.created_at
        FROM reservation_requests r
        WHERE r.lane = part.lane AND r.slot = part.slot AND r.sequence >= number.at
        ORDER BY r.sequence
        LIMIT 1
    ) r
    WHERE part.length > 0 AND r.sequence <= part.last
), waiting AS MATERIALIZED (
    SELECT CASE WHEN moving.slot IS NULL THEN r.lane ELSE 'hot' END AS lane, coalesce(moving.slot, r.slot) AS slot, r.tenant_id,
           sum(r.weight) AS depth, min(r.created_at) AS oldest
    FROM (
        SELECT lane, slot, tenant_id, variant_id, created_at, 1 AS weight FROM retried
        UNION ALL
        SELECT lane, slot, tenant_id, variant_id, created_at, 1 FROM first WHERE status = 'queued'
        UNION ALL
        SELECT lane, slot, tenant_id, variant_id, created_at, 1 FROM last WHERE status = 'queued'
        UNION ALL
        SELECT lane, slot, tenant_id, variant_id, created_at, weight FROM sampled WHERE status = 'queued'
    ) r
    LEFT JOIN hot_variants moving ON moving.tenant_id = r.tenant_id AND moving.variant_id = r.variant_id AND moving.state <> 'hot' AND r.lane <> 'hot'
    GROUP BY 1, 2, 3
)`

const publishSQL = waitingRequests + lanes.PublishLoad

// Publish estimates the undecided requests of all lanes, and publishes that.
// It does nothing and reports false if the load was published less than every
// ago, or less than twenty times as long ago as that count took (a second at
// most). It also reports false if a count failed in this process lately, or
// another process counts now. It locks neither slots nor the controls of lanes.
func (l *Load) Publish(ctx context.Context, every time.Duration) (published bool, err error) {
	if failed := l.failed.Load(); failed > 0 && time.Since(l.made) < time.Duration(failed)+failurePause {
		return false, nil
	}
	ctx, done := telemetry.Verb(ctx, "queues.publish_load")
	defer func() { done("", err) }()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, l.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		var drawn int64
		published, drawn, err = lanes.BeginCountTx(ctx, tx, every)
		if err != nil || !published {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(countSettingsSQL)
		b.Queue(publishSQL, drawn, lanes.LoadMax)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		l.failed.Store(int64(time.Since(l.made)))
		return false, fmt.Errorf("publish the load: %w", err)
	}
	return published, nil
}

// Read returns the published load, the lanes' controls and the routes
// (admission.IntakeConfig.Load). If the load is older than stale, or none is
// published, Read first tries to publish it.
func (l *Load) Read(ctx context.Context, stale time.Duration) (lanes.Load, error) {
	load, err := lanes.ReadLoad(ctx, l.db)
	if err != nil || load.Lanes != nil && load.Age <= stale {
		return load, err
	}
	published, err := l.Publish(ctx, stale)
	if !published {
		return load, err
	}
	return lanes.ReadLoad(ctx, l.db)
}

// LaneState is what waits in a lane, how fast it is decided, and the lane's
// controls, over all tenants and processes.
type LaneState struct {
	Lane lanes.Lane `json:"lane"`
	// Depth is the number of undecided requests. It is an estimate if a stream
	// has more than 500 requests above its low-water mark.
	Depth int64 `json:"depth"`
	// OldestAgeSeconds is how long the oldest of them has waited.
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	// RatePerSecond is how many requests per second were decided lately.
	RatePerSecond float64 `json:"rate_per_second"`
	Paused        bool    `json:"paused"`
	// RateCap is how many requests per second may be decided, nil for no cap.
	RateCap *int32 `json:"rate_cap"`
	Slots   int64  `json:"slots"`
}

const lanesSQL = waitingRequests + `
SELECT control.lane,
       coalesce(round((SELECT sum(waiting.depth) FROM waiting WHERE waiting.lane = control.lane)), 0)::bigint AS depth,
       greatest(coalesce(extract(epoch FROM clock_timestamp() - (SELECT min(waiting.oldest) FROM waiting WHERE waiting.lane = control.lane)), 0), 0)::double precision
           AS oldest_age_seconds,
       ` + lanes.RecentRate + ` AS rate_per_second,
       control.paused, control.rate_cap,
       (SELECT count(*) FROM ` + lanes.Slots + ` slots WHERE slots.lane = control.lane) AS slots
FROM ` + lanes.Controls + ` control
ORDER BY control.lane`

// Lanes returns the state of every lane.
func Lanes(ctx context.Context, db audit.Querier) ([]LaneState, error) {
	rows, err := db.Query(ctx, lanesSQL)
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LaneState])
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	return states, nil
}
