package hot

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// pass is one look of the detector.
type pass struct {
	since  float64 // seconds since the pass before
	seen   int64   // the last sequence number it looked at
	newest int64   // the last one that this pass looks at
	now    time.Time
	paused bool // the hot lane decides nothing now
}

// subject is what a pass sees of a variant, or with an empty VariantID of a tenant, or with neither of everybody.
type subject struct {
	TenantID  uuid.UUID
	VariantID string
	// Rate is how many of its requests arrive a second. Waiting is how many wait among the newest of each normal stream; of
	// a tenant, in the stream it shares with others, for variants that are not hot. Short is how many of those that arrived
	// since the last pass were turned away for want of stock.
	Rate           float64
	Waiting, Short int
	// Slot and State are empty where nothing was moved; for a diverted tenant, Slot is its stream. Eligible says that the
	// variant exists, is tracked, and leaves the choice of its lane to the service.
	Slot      *int16
	State     string
	Pinned    bool
	MovedAt   *time.Time
	Eligible  bool
	BusySince *time.Time
	// QuietSince is set for those that were moved only.
	QuietSince *time.Time
}

func (s *subject) id() subjectID { return subjectID{s.TenantID, s.VariantID} }

// isHot reports whether its requests go to the hot lane, or aside, now.
func (s *subject) isHot() bool { return s.Slot != nil && s.State != "leaving" }

const (
	// fresh is how long a signal says something: two windows and a half.
	fresh = 5 * noteEvery / 2
	// subjectsMax bounds a pass: whoever was moved comes first, then tenants, then variants, each the busiest first.
	subjectsMax = 2000
	// waitingMin is how many wait, or were turned away, before it is worth a row.
	waitingMin = 10
)

// lookSQL reads no more than $2 requests of each normal stream, the newest, and none of an idle one; of the stocks, those of
// its subjects, each by its key.
const lookSQL = `
WITH arriving AS MATERIALIZED (
    SELECT s.tenant_id, s.variant_id, sum(s.rate) AS rate
    FROM hot_signals s
    WHERE s.noted_at BETWEEN clock_timestamp() - $3::interval AND clock_timestamp()
    GROUP BY s.tenant_id, s.variant_id
), newest AS MATERIALIZED (
    SELECT r.*, r.slot = 0 AND h.tenant_id IS NULL AS shared
    FROM lane_slots stream
    CROSS JOIN LATERAL (
        SELECT r.tenant_id, r.variant_id, r.slot, r.sequence > $1 AND r.reason = 'out_of_stock' AS short, r.status = 'queued' AS queued
        FROM reservation_requests r
        WHERE r.lane = stream.lane AND r.slot = stream.slot AND r.sequence > least(stream.low_water, $1)
        ORDER BY r.sequence DESC
        LIMIT $2
    ) r
    LEFT JOIN hot_variants h ON h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id
    WHERE stream.lane = 'normal' AND stream.slot >= 0
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
    SELECT d.tenant_id, '', d.slot, 'aside', false, d.diverted_at FROM diverted_tenants d
), subject AS MATERIALIZED (
    SELECT tenant_id, variant_id FROM arriving
    UNION
    SELECT tenant_id, variant_id FROM waiting
    UNION
    SELECT tenant_id, variant_id FROM moved WHERE NOT pinned
)
SELECT subject.tenant_id, subject.variant_id, coalesce(arriving.rate, 0) AS rate, coalesce(waiting.waiting, 0) AS waiting, coalesce(waiting.short, 0) AS short,
       moved.slot, coalesce(moved.state, '') AS state, coalesce(moved.pinned, false) AS pinned, moved.moved_at,
       coalesce((
           SELECT stock.tracked AND stock.lane = 'auto'
           FROM inventory_stocks stock
           WHERE stock.tenant_id = subject.tenant_id AND stock.variant_id = subject.variant_id), false) AS eligible,
       watch.busy_since, watch.quiet_since
FROM subject
LEFT JOIN arriving USING (tenant_id, variant_id)
LEFT JOIN waiting USING (tenant_id, variant_id)
LEFT JOIN moved USING (tenant_id, variant_id)
LEFT JOIN hot_watches watch USING (tenant_id, variant_id)
ORDER BY moved.slot IS NULL, subject.variant_id <> '', rate DESC, waiting DESC, subject.tenant_id, subject.variant_id
LIMIT $5`

// newestSQL comes before the look: what is admitted between them, the next pass counts again.
const newestSQL = `SELECT coalesce(max(sequence), 0) FROM (
    SELECT (SELECT max(r.sequence) FROM reservation_requests r WHERE r.lane = stream.lane AND r.slot = stream.slot) AS sequence
    FROM lane_slots stream
    WHERE stream.lane = 'normal' AND stream.slot >= 0
) streams`

// look reads what all processes see, what waits, and what was moved before. Whatever has changed by the time of the move is
// found by the move's own conditions.
func (p *pass) look(ctx context.Context, tx pgx.Tx) (subjects []subject, err error) {
	b := &pgx.Batch{}
	b.Queue(newestSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&p.newest) })
	b.Queue(lookSQL, p.seen, LookMax, fresh, waitingMin, subjectsMax).Query(func(rows pgx.Rows) error {
		subjects, err = pgx.CollectRows(rows, pgx.RowToStructByPos[subject])
		return err
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("look: %w", err)
	}
	return subjects, nil
}
