package queues

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

// Load counts what waits in the lanes, publishes it, and reads what was published last. Lanes that run publish it while
// there are changes; an intake reads it, and publishes it if no lane has for a while (requests.IntakeConfig.Load).
type Load struct {
	db     *pgxpool.Pool
	max    int
	made   time.Time
	failed atomic.Int64 // when this process last failed to count, in nanoseconds since made; 0: never
}

// NewLoad returns the load of all lanes. depthMax is the intakes' DepthMax, 0 for its default: of each stream, the
// newest requests above the low-water mark are counted, up to a quarter more than that and 10,000.
func NewLoad(db *pgxpool.Pool, depthMax int) *Load {
	setDefault(&depthMax, DepthMax)
	return &Load{db: db, max: depthMax + depthMax/4 + 10_000, made: time.Now()}
}

const (
	// publishEvery is how often a lane that runs publishes the load, while there are changes.
	publishEvery = 250 * time.Millisecond
	// publishTimeout bounds one count. One that fails is followed by a rest of failedRest.
	publishTimeout, failedRest = 5 * time.Second, 20 * time.Second
	// loadMax is how many streams of a lane the published load names, those with the oldest requests, and how many
	// tenants, those with the most requests. The others only count towards the lane's depth.
	loadMax = 1000
	// routesMax is how many hot variants, and how many diverted tenants, the load names, the newest. The requests of
	// others are taken for requests of the normal lane's first stream.
	routesMax = 10_000
)

// beginCountSQL returns whether a count is due, which the transaction then makes alone, and the last sequence number
// drawn.
const beginCountSQL = `
SELECT pg_try_advisory_xact_lock('lane_loads'::regclass::oid::integer, 0)
       AND NOT EXISTS (SELECT FROM lane_loads
                       WHERE published_at BETWEEN clock_timestamp() - greatest($1, least(20 * (published_at - counted_at), interval '1 second')) AND clock_timestamp()),
       (` + requests.DrawnSQL + `)`

// countSettingsSQL has publishSQL planned for many rows (the planner expects few), by hashes and without sorting all
// that waits. The commit waits for no disk, because a load that a crash of the server loses is counted again.
const countSettingsSQL = `
SELECT set_config('enable_sort', 'off', true), set_config('enable_nestloop', 'off', true), set_config('enable_hashjoin', 'on', true),
       set_config('jit', 'off', true), set_config('synchronous_commit', 'off', true)`

// publishSQL counts requests in isolated retry too, wherever the mark of their stream is. It reads each stream from
// its end back to its low-water mark, so that whatever the bound leaves out is the oldest and most likely finished.
// What was admitted to the normal lane for a variant that is moving is decided by its hot slot alone, and counts
// there.
const publishSQL = `
WITH retried AS MATERIALIZED (
    SELECT tenant_id, variant_id, lane, slot, created_at
    FROM reservation_requests
    WHERE claim_expires_at IS NOT NULL
    LIMIT $2
), waiting AS MATERIALIZED (
    SELECT CASE WHEN h.slot IS NULL THEN s.lane ELSE 'hot' END AS lane, coalesce(h.slot, s.slot) AS slot, r.tenant_id,
           count(*) AS depth, min(r.created_at) AS oldest
    FROM lane_slots s
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
    LEFT JOIN hot_variants h ON h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id AND h.state <> 'hot' AND s.lane = 'normal'
    WHERE s.slot >= 0 AND r.status = 'queued'
    GROUP BY 1, 2, 3
), streams AS MATERIALIZED (
    SELECT lane, slot, row_number() OVER (PARTITION BY lane ORDER BY min(oldest)) AS place,
           jsonb_build_object('depth', sum(depth), 'oldest_seconds', extract(epoch FROM clock_timestamp() - min(oldest)),
                              'sole_tenant', CASE WHEN count(*) = 1 THEN min(tenant_id::text) END) AS load
    FROM waiting
    GROUP BY lane, slot
), owners AS MATERIALIZED (
    SELECT lane, tenant_id, sum(depth) AS depth, row_number() OVER (PARTITION BY lane ORDER BY sum(depth) DESC) AS place
    FROM waiting
    GROUP BY lane, tenant_id
)
INSERT INTO lane_loads (lane, drawn, load, counted_at, published_at)
SELECT control.lane, $1,
       (SELECT jsonb_build_object('depth', coalesce(sum(depth), 0), 'tenants', count(*),
                                  'deepest', coalesce(jsonb_object_agg(tenant_id, depth) FILTER (WHERE place <= $3), '{}'))
        FROM owners
        WHERE owners.lane = control.lane)
       || (SELECT jsonb_build_object('streams', coalesce(jsonb_object_agg(slot, load), '{}'))
           FROM streams
           WHERE streams.lane = control.lane AND place <= $3),
       statement_timestamp(), clock_timestamp()
FROM lane_slots control
WHERE control.slot = -1
ON CONFLICT (lane) DO UPDATE
SET drawn = excluded.drawn, load = excluded.load, counted_at = excluded.counted_at, published_at = excluded.published_at`

// Publish counts what waits in all lanes, and publishes it. It reports false, having done nothing, if that was last
// done less than every ago, or less than twenty times as long ago as it took (a second at most), if it failed here lately,
// or if another process does it now. No
// lock of a slot or of a lane's controls is taken.
func (l *Load) Publish(ctx context.Context, every time.Duration) (published bool, err error) {
	if failed := l.failed.Load(); failed > 0 && time.Since(l.made) < time.Duration(failed)+failedRest {
		return false, nil
	}
	ctx, done := telemetry.Verb(ctx, "queues.publish_load")
	defer func() { done("", err) }()
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err = pgx.BeginTxFunc(ctx, l.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		var drawn int64 // read before the statement that counts begins
		err := tx.QueryRow(ctx, beginCountSQL, every).Scan(&published, &drawn)
		if err != nil || !published {
			return err
		}
		b := &pgx.Batch{}
		b.Queue(countSettingsSQL)
		b.Queue(publishSQL, drawn, l.max, loadMax)
		return tx.SendBatch(ctx, b).Close()
	})
	if err != nil {
		l.failed.Store(int64(time.Since(l.made)))
		return false, fmt.Errorf("publish the load: %w", err)
	}
	return published, nil
}

const loadSQL = `
SELECT control.lane, coalesce(published.load, '{}'), coalesce(published.drawn, 0),
       coalesce(extract(epoch FROM clock_timestamp() - counted_at), -1)::double precision,
       ` + latelyDecided + `,
       coalesce(control.rate_cap, 0), control.paused
FROM lane_slots control
LEFT JOIN lane_loads published ON published.lane = control.lane
WHERE control.slot = -1`

// routesSQL returns which streams decide requests, other than the first of the normal lane: those for hot variants,
// on their way out too, and all others of a diverted tenant, whose variant is left empty.
const routesSQL = `
(SELECT tenant_id, variant_id, 'hot' AS lane, slot FROM hot_variants ORDER BY moved_at DESC LIMIT $1)
UNION ALL
(SELECT tenant_id, '', 'normal', slot FROM diverted_tenants ORDER BY diverted_at DESC LIMIT $1)`

// Read returns the published load, the lanes' controls and the routes (requests.IntakeConfig.Load).
func (l *Load) Read(ctx context.Context, stale time.Duration) (requests.Load, error) {
	load, err := l.read(ctx)
	if err != nil || load.Lanes != nil && load.Age <= stale {
		return load, err
	}
	published, err := l.Publish(ctx, stale)
	if !published {
		return load, err
	}
	return l.read(ctx)
}

// read returns the published load; the zero value if there is none, or the clock was set back.
func (l *Load) read(ctx context.Context) (requests.Load, error) {
	load := requests.Load{Lanes: make(map[string]requests.LaneLoad), Routes: make(map[requests.Route]requests.Wake)}
	b := &pgx.Batch{}
	b.Queue(loadSQL).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var name string
			var lane requests.LaneLoad
			var age float64
			if err := rows.Scan(&name, &lane, &load.Drawn, &age, &lane.Rate, &lane.RateCap, &lane.Paused); err != nil {
				return err
			}
			load.Lanes[name], load.Age = lane, time.Duration(age*float64(time.Second))
		}
		return rows.Err()
	})
	b.Queue(routesSQL, routesMax).Query(func(rows pgx.Rows) error {
		var from requests.Route
		var to requests.Wake
		_, err := pgx.ForEachRow(rows, []any{&from.TenantID, &from.VariantID, &to.Lane, &to.Slot}, func() error {
			load.Routes[from] = to
			return nil
		})
		return err
	})
	if err := l.db.SendBatch(ctx, b).Close(); err != nil {
		return requests.Load{}, fmt.Errorf("read the load: %w", err)
	}
	if load.Age < 0 {
		return requests.Load{}, nil
	}
	return load, nil
}
