package queues

import (
	"cmp"
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

// Load counts the undecided requests of the lanes, publishes the count, and
// reads the last published one. Lanes that run publish it after changes. An
// intake reads it, and publishes it if no lane has for a while.
type Load struct {
	db     *pgxpool.Pool
	max    int
	made   time.Time
	failed atomic.Int64 // when this process last failed to count, in nanoseconds since made; 0: never
}

// NewLoad returns the load of all lanes. depthMax is the intakes' DepthMax, 0
// for its default. Of each stream, the newest requests above the low-water mark
// are counted, at most 5/4 of depthMax plus 10,000.
func NewLoad(db *pgxpool.Pool, depthMax int) *Load {
	depthMax = cmp.Or(depthMax, DepthMax)
	return &Load{db: db, max: depthMax + depthMax/4 + 10_000, made: time.Now()}
}

const (
	// publishEvery is how often a running lane publishes the load, after
	// changes.
	publishEvery = 250 * time.Millisecond
	// publishTimeout bounds one count. After a count that fails, this process
	// does not count for failurePause.
	publishTimeout, failurePause = 5 * time.Second, 20 * time.Second
)

// countSettingsSQL makes the planner choose hash joins for publishSQL, without
// sorting all queued requests: it expects few rows, and there are many. The
// commit does not wait for the disk, because a load that a crash of the server
// loses is counted again.
const countSettingsSQL = `
SELECT set_config('enable_sort', 'off', true), set_config('enable_nestloop', 'off', true), set_config('enable_hashjoin', 'on', true),
       set_config('jit', 'off', true), set_config('synchronous_commit', 'off', true)`

// publishSQL also counts requests in isolated retry, at any mark of their
// stream. It reads each stream from its end back to its low-water mark, so the
// requests beyond the bound are the oldest, which are most likely finished. A
// request in the normal lane for a variant that is moving is decided by the
// variant's hot slot alone, and counts there.
const publishSQL = `
WITH retried AS MATERIALIZED (
    SELECT tenant_id, variant_id, lane, slot, created_at
    FROM reservation_requests
    WHERE claim_expires_at IS NOT NULL
    LIMIT $2
), waiting AS MATERIALIZED (
    SELECT CASE WHEN h.slot IS NULL THEN s.lane ELSE 'hot' END AS lane, coalesce(h.slot, s.slot) AS slot, r.tenant_id,
           count(*) AS depth, min(r.created_at) AS oldest
    FROM ` + lanes.Slots + ` s
    CROSS JOIN LATERAL (
        (SELECT newest.tenant_id, newest.variant_id, newest.created_at, newest.status
         FROM reservation_requests newest
         WHERE newest.lane = s.lane AND newest.slot = s.slot AND newest.sequence > s.low_water
         ORDER BY newest.sequence DESC
         LIMIT $2)
        UNION ALL
        (SELECT retried.tenant_id, retried.variant_id, retried.created_at, 'queued'
         FROM retried
         WHERE retried.lane = s.lane AND retried.slot = s.slot)
    ) r
    LEFT JOIN hot_variants h ON h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id AND h.state <> 'hot' AND s.lane <> 'hot'
    WHERE r.status = 'queued'
    GROUP BY 1, 2, 3
)` + lanes.PublishLoad

// Publish counts the undecided requests of all lanes, and publishes the count.
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
		b.Queue(publishSQL, drawn, l.max, lanes.LoadMax)
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
	// Depth counts the undecided requests, up to DepthMax.
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

// DepthMax is the highest depth that is reported; it means that many or more.
const DepthMax = 100_000

// lanesSQL counts requests in isolated retry separately, because they may be
// below the mark.
const lanesSQL = `
WITH retried AS MATERIALIZED (
    SELECT lane, slot, sequence, created_at
    FROM reservation_requests
    WHERE claim_expires_at IS NOT NULL
    LIMIT $1
)
SELECT control.lane, coalesce(sum(waiting.depth), 0)::bigint AS depth,
       greatest(coalesce(extract(epoch FROM clock_timestamp() - min(waiting.oldest)), 0), 0)::double precision AS oldest_age_seconds,
       ` + lanes.RecentRate + ` AS rate_per_second,
       control.paused, control.rate_cap, count(slots.slot) AS slots
FROM ` + lanes.Controls + ` control
LEFT JOIN ` + lanes.Slots + ` slots ON slots.lane = control.lane
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
GROUP BY control.lane, control.paused, control.rate_cap, control.rate, control.window_started_at
ORDER BY control.lane`

// Lanes returns the state of every lane.
func Lanes(ctx context.Context, db audit.Querier) ([]LaneState, error) {
	rows, err := db.Query(ctx, lanesSQL, DepthMax)
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[LaneState])
	if err != nil {
		return nil, fmt.Errorf("read the lanes: %w", err)
	}
	return states, nil
}
