package lanes

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Load is the undecided requests of all processes, as they were last counted
// and published.
type Load struct {
	// Age is how long ago the count began, by the database's clock.
	Age time.Duration
	// Drawn is the last sequence number drawn before the count. Requests with a
	// higher number may be missing from it.
	Drawn int64
	// Lanes are as they were counted, except for their rates and controls,
	// which are current.
	Lanes map[Lane]LaneLoad
	// Routes maps requests to the streams that decide them. It leaves out the
	// shared stream of the normal lane.
	Routes map[Route]Stream
}

// LaneLoad is the undecided requests of a lane, and how fast they are decided.
type LaneLoad struct {
	Depth int64 `json:"depth"`
	// Tenants is how many tenants have undecided requests. Deepest has the
	// number of requests of those tenants that have the most.
	Tenants int64               `json:"tenants"`
	Deepest map[uuid.UUID]int64 `json:"deepest"`
	// Streams are the streams with the oldest requests, by slot.
	Streams map[int16]StreamLoad `json:"streams"`
	// Rate is how many requests per second were decided lately. RateCap is how
	// many may be decided per second; 0 for no cap.
	Rate    float64 `json:"-"`
	RateCap int32   `json:"-"`
	Paused  bool    `json:"-"`
}

// StreamLoad is the undecided requests of a stream.
type StreamLoad struct {
	Depth int64 `json:"depth"`
	// OldestSeconds is the age of its oldest request when it was counted.
	OldestSeconds float64 `json:"oldest_seconds"`
	// SoleTenant is the tenant of all its requests; nil if they belong to
	// several.
	SoleTenant *uuid.UUID `json:"sole_tenant"`
}

// Route names requests that a stream decides: those for a variant, or all other
// requests of a tenant if VariantID is empty.
type Route struct {
	TenantID  uuid.UUID
	VariantID string
}

const (
	// LoadMax is how many streams of a lane the published load names, those
	// with the oldest requests, and how many tenants, those with the most
	// requests. The others count only towards the lane's depth.
	LoadMax = 1000
	// routesMax is how many hot variants, and how many diverted tenants, the
	// load names, the newest. Requests of the others count for the shared
	// stream of the normal lane.
	routesMax = 10_000
)

// beginCountSQL returns whether a count is due, and the last sequence number
// drawn. If it is due, no other transaction counts until this one ends.
const beginCountSQL = `
SELECT pg_try_advisory_xact_lock('lane_loads'::regclass::oid::integer, 0)
       AND NOT EXISTS (SELECT FROM lane_loads
                       WHERE published_at BETWEEN clock_timestamp() - greatest($1, least(20 * (published_at - counted_at), interval '1 second')) AND clock_timestamp()),
       (` + DrawnSQL + `)`

// BeginCountTx reports whether a count of the load is due, and returns the last
// sequence number drawn. A count is due if the load was last published at least
// every ago, and at least twenty times as long ago as that count took, a second
// at most. No other transaction counts until this one ends.
//
// The sequence number is read before the statement that counts begins. The
// transaction must be READ COMMITTED.
func BeginCountTx(ctx context.Context, tx pgx.Tx, every time.Duration) (due bool, drawn int64, err error) {
	err = tx.QueryRow(ctx, beginCountSQL, every).Scan(&due, &drawn)
	return due, drawn, err
}

// PublishLoad is the end of a SQL statement that publishes the load of all
// lanes. Its CTE waiting (lane, slot, tenant_id, depth, oldest) has the
// undecided requests. $1 is the last sequence number drawn, $2 is LoadMax.
const PublishLoad = `, streams AS MATERIALIZED (
    SELECT lane, slot, row_number() OVER (PARTITION BY lane ORDER BY min(oldest)) AS place,
           jsonb_build_object('depth', round(sum(depth)), 'oldest_seconds', extract(epoch FROM clock_timestamp() - min(oldest)),
                              'sole_tenant', CASE WHEN count(*) = 1 THEN min(tenant_id::text) END) AS load
    FROM waiting
    GROUP BY lane, slot
), owners AS MATERIALIZED (
    SELECT lane, tenant_id, round(sum(depth)) AS depth, row_number() OVER (PARTITION BY lane ORDER BY sum(depth) DESC) AS place
    FROM waiting
    GROUP BY lane, tenant_id
)
INSERT INTO lane_loads (lane, drawn, load, counted_at, published_at)
SELECT control.lane, $1,
       (SELECT jsonb_build_object('depth', (SELECT coalesce(round(sum(depth)), 0) FROM waiting WHERE waiting.lane = control.lane), 'tenants', count(*),
                                  'deepest', coalesce(jsonb_object_agg(tenant_id, depth) FILTER (WHERE place <= $2), '{}'))
        FROM owners
        WHERE owners.lane = control.lane)
       || (SELECT jsonb_build_object('streams', coalesce(jsonb_object_agg(slot, load), '{}'))
           FROM streams
           WHERE streams.lane = control.lane AND place <= $2),
       statement_timestamp(), clock_timestamp()
FROM ` + Controls + ` control
ON CONFLICT (lane) DO UPDATE
SET drawn = excluded.drawn, load = excluded.load, counted_at = excluded.counted_at, published_at = excluded.published_at`

const loadSQL = `
SELECT control.lane, coalesce(published.load, '{}'), coalesce(published.drawn, 0),
       coalesce(extract(epoch FROM clock_timestamp() - counted_at), -1)::double precision,
       ` + RecentRate + `,
       coalesce(control.rate_cap, 0), control.paused
FROM ` + Controls + ` control
LEFT JOIN lane_loads published ON published.lane = control.lane`

// routesSQL returns the streams that decide requests, other than the shared
// stream of the normal lane: those of hot variants, also of variants that are
// leaving, and with an empty variant those of diverted tenants.
const routesSQL = `
(SELECT tenant_id, variant_id, 'hot' AS lane, slot FROM hot_variants ORDER BY moved_at DESC LIMIT $1)
UNION ALL
(SELECT tenant_id, '', 'normal', slot FROM diverted_tenants ORDER BY diverted_at DESC LIMIT $1)`

// ReadLoad returns the published load, the lanes' controls and the routes. It
// returns the zero value if no load is published, or the clock was set back.
func ReadLoad(ctx context.Context, db *pgxpool.Pool) (Load, error) {
	load := Load{Lanes: make(map[Lane]LaneLoad), Routes: make(map[Route]Stream)}
	b := &pgx.Batch{}
	b.Queue(loadSQL).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var name Lane
			var lane LaneLoad
			var age float64
			if err := rows.Scan(&name, &lane, &load.Drawn, &age, &lane.Rate, &lane.RateCap, &lane.Paused); err != nil {
				return err
			}
			load.Lanes[name], load.Age = lane, time.Duration(age*float64(time.Second))
		}
		return rows.Err()
	})
	b.Queue(routesSQL, routesMax).Query(func(rows pgx.Rows) error {
		var from Route
		var to Stream
		_, err := pgx.ForEachRow(rows, []any{&from.TenantID, &from.VariantID, &to.Lane, &to.Slot}, func() error {
			load.Routes[from] = to
			return nil
		})
		return err
	})
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return Load{}, fmt.Errorf("read the load: %w", err)
	}
	if load.Age < 0 {
		return Load{}, nil
	}
	return load, nil
}
