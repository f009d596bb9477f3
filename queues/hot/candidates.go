package hot

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/signals"
)

// pass is one run of the detector.
type pass struct {
	since  float64 // seconds since the pass before
	seen   int64   // the last sequence number that the pass before read
	newest int64   // the last one that this pass reads
	now    time.Time
	paused bool // the hot lane is paused
}

// candidate is what a pass reads about a variant, about a tenant if VariantID
// is empty, or about all tenants if TenantID is zero too.
type candidate struct {
	TenantID  uuid.UUID
	VariantID string
	// Rate is how many of its requests arrive per second. Waiting counts its
	// queued requests among the newest of each normal stream; for a tenant,
	// those in the shared stream for variants that are not hot. Short counts
	// the requests since the last pass that were rejected as out of stock.
	Rate           float64
	Waiting, Short int
	// Slot and State are empty if nothing was moved; for a diverted tenant,
	// Slot is its stream. Eligible means that the variant exists, is tracked,
	// and leaves the choice of its lane to the detector.
	Slot      *int16
	State     string
	Pinned    bool
	MovedAt   *time.Time
	Eligible  bool
	BusySince *time.Time
	// QuietSince is set only for candidates that were moved.
	QuietSince *time.Time
}

func (s *candidate) move(action string, slot int16, why string) lanes.Move {
	return lanes.Move{TenantID: s.TenantID, VariantID: s.VariantID, Action: action, Slot: slot, Why: why}
}

// isHot reports whether its requests go to the hot lane now, or for a tenant,
// to the stream of diverted tenants.
func (s *candidate) isHot() bool { return s.Slot != nil && s.State != "leaving" }

const (
	// candidatesMax bounds a pass. Candidates that were moved come first, then
	// tenants, then variants, the busiest of each first.
	candidatesMax = 2000
	// waitingMin is how many requests must wait, or have been rejected as out
	// of stock, for a row.
	waitingMin = 10
)

// candidatesSQL reads at most $2 requests of each normal stream, the newest,
// and none of an idle one. It reads the stock of each candidate by its key.
const candidatesSQL = `
WITH arriving AS MATERIALIZED (
    SELECT s.tenant_id, s.variant_id, sum(s.rate) AS rate
    FROM hot_signals s
    WHERE s.measured_at BETWEEN clock_timestamp() - $3::interval AND clock_timestamp()
    GROUP BY s.tenant_id, s.variant_id
), newest AS MATERIALIZED (
    SELECT r.*, r.slot = 0 AND h.tenant_id IS NULL AS shared
    FROM ` + lanes.ParallelSlots + ` stream
    CROSS JOIN LATERAL (
        SELECT r.tenant_id, r.variant_id, r.slot, r.sequence > $1 AND r.reason = 'out_of_stock' AS short, r.status = 'queued' AS queued
        FROM reservation_requests r
        WHERE r.lane = stream.lane AND r.slot = stream.slot AND r.sequence > least(stream.low_water, $1)
        ORDER BY r.sequence DESC
        LIMIT $2
    ) r
    LEFT JOIN hot_variants h ON h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id
), waiting AS MATERIALIZED (
    SELECT coalesce(n.tenant_id, '00000000-0000-0000-0000-000000000000') AS tenant_id, coalesce(n.variant_id, '') AS variant_id,
           CASE grouping(n.variant_id) WHEN 0 THEN count(*) FILTER (WHERE n.queued)
                                       ELSE count(*) FILTER (WHERE n.queued AND n.shared) END AS waiting,
           count(*) FILTER (WHERE n.short) AS short
    FROM newest n
    GROUP BY GROUPING SETS ((n.tenant_id, n.variant_id), (n.tenant_id), ())
    HAVING count(*) FILTER (WHERE n.queued OR n.short) >= $4
), moved AS MATERIALIZED (
    SELECT h.tenant_id, h.variant_id, h.slot, h.state, h.pinned, h.moved_at FROM hot_variants h
    UNION ALL
    SELECT d.tenant_id, '', d.slot, 'diverted', false, d.diverted_at FROM diverted_tenants d
), candidate AS MATERIALIZED (
    SELECT tenant_id, variant_id FROM arriving
    UNION
    SELECT tenant_id, variant_id FROM waiting
    UNION
    SELECT tenant_id, variant_id FROM moved WHERE NOT pinned
)
SELECT candidate.tenant_id, candidate.variant_id, coalesce(arriving.rate, 0) AS rate, coalesce(waiting.waiting, 0) AS waiting, coalesce(waiting.short, 0) AS short,
       moved.slot, coalesce(moved.state, '') AS state, coalesce(moved.pinned, false) AS pinned, moved.moved_at,
       coalesce((
           SELECT stock.tracked AND stock.lane = 'auto'
           FROM inventory_stocks stock
           WHERE stock.tenant_id = candidate.tenant_id AND stock.variant_id = candidate.variant_id), false) AS eligible,
       observed.busy_since, observed.quiet_since
FROM candidate
LEFT JOIN arriving USING (tenant_id, variant_id)
LEFT JOIN waiting USING (tenant_id, variant_id)
LEFT JOIN moved USING (tenant_id, variant_id)
LEFT JOIN hot_observations observed USING (tenant_id, variant_id)
ORDER BY moved.slot IS NULL, candidate.variant_id <> '', rate DESC, waiting DESC, candidate.tenant_id, candidate.variant_id
LIMIT $5`

// newestSQL runs before candidatesSQL. The next pass counts again what is
// admitted between the two.
const newestSQL = `SELECT coalesce(max(sequence), 0) FROM (
    SELECT (SELECT max(r.sequence) FROM reservation_requests r WHERE r.lane = stream.lane AND r.slot = stream.slot) AS sequence
    FROM ` + lanes.ParallelSlots + ` stream
) streams`

// load reads the signals of all processes, the queued requests, and the moves
// that are in force. If a row changes before the move, the move's own
// conditions detect it.
func (p *pass) load(ctx context.Context, tx pgx.Tx) (candidates []candidate, err error) {
	b := &pgx.Batch{}
	b.Queue(newestSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&p.newest) })
	b.Queue(candidatesSQL, p.seen, scanMax, signals.MaxAge, waitingMin, candidatesMax).Query(func(rows pgx.Rows) error {
		candidates, err = pgx.CollectRows(rows, pgx.RowToStructByPos[candidate])
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read the detector's candidates: %w", err)
	}
	return candidates, nil
}

const recordObservationsSQL = `
INSERT INTO hot_observations (tenant_id, variant_id, rate, waiting, busy_since, quiet_since)
SELECT w.tenant_id, w.variant_id, w.rate, w.waiting, w.busy_since, w.quiet_since
FROM unnest($1::uuid[], $2::text[], $3::double precision[], $4::integer[], $5::timestamptz[], $6::timestamptz[])
     AS w (tenant_id, variant_id, rate, waiting, busy_since, quiet_since)
ON CONFLICT (tenant_id, variant_id) DO UPDATE
SET rate = excluded.rate, waiting = excluded.waiting, busy_since = excluded.busy_since, quiet_since = excluded.quiet_since`

const deleteObservationsSQL = `
DELETE FROM hot_observations o
WHERE NOT EXISTS (
    SELECT
    FROM unnest($1::uuid[], $2::text[]) AS kept (tenant_id, variant_id)
    WHERE kept.tenant_id = o.tenant_id AND kept.variant_id = o.variant_id)`

const recordPassSQL = `UPDATE hot_detector SET ran_at = $1, seen = greatest(seen, $2)`

// persist writes what the next pass must know.
func (p *pass) persist(ctx context.Context, tx pgx.Tx, observations []candidate) error {
	n := len(observations)
	tenants, variants, rates, waiting := make([][16]byte, n), make([]string, n), make([]float64, n), make([]int, n)
	busy, quiet := make([]*time.Time, n), make([]*time.Time, n)
	for i := range observations {
		w := &observations[i]
		tenants[i], variants[i], rates[i], waiting[i], busy[i], quiet[i] = w.TenantID, w.VariantID, w.Rate, w.Waiting, w.BusySince, w.QuietSince
	}
	b := &pgx.Batch{}
	b.Queue(deleteObservationsSQL, tenants, variants)
	b.Queue(recordObservationsSQL, tenants, variants, rates, waiting, busy, quiet)
	signals.QueueExpire(b)
	b.Queue(recordPassSQL, p.now, p.newest)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return fmt.Errorf("record the pass: %w", err)
	}
	return nil
}
