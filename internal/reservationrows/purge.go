package reservationrows

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// purgeSQL reads the clock once; see dueRange. reservations_deadline_idx has
// rows of all kinds and statuses, so the statement reads every row with a
// deadline between its two bounds, even those it keeps: about 26,500 blocks per
// million.
const purgeSQL = `
WITH old AS MATERIALIZED (
    SELECT r.tenant_id, r.reservation_id
    FROM reservations r
    WHERE r.quantity >= 1 AND r.expires_at >= (SELECT greatest($5::timestamptz, clock_timestamp() - nullif($6::interval, interval '0')))
      AND r.expires_at < (SELECT clock_timestamp() - $2::interval)
      AND r.ended_at < (SELECT clock_timestamp() - $2::interval) AND r.resource_kind = $1
      AND ($4 OR r.status <> 'committed')
    ORDER BY r.expires_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM reservations r
    USING old
    WHERE r.tenant_id = old.tenant_id AND r.reservation_id = old.reservation_id
    RETURNING r.expires_at
)
SELECT count(*), coalesce(max(d.expires_at), $5) AS last
FROM deleted d`

// Purge selects the reservations of a kind that are deleted.
type Purge struct {
	Kind string
	// Retention is how long an ended reservation is kept, after its end and
	// after its deadline.
	Retention time.Duration
	// Within is the longest time since the deadline of a reservation, zero for
	// any. Reservations with an earlier deadline are neither deleted nor read.
	Within time.Duration
	// Committed includes committed reservations. They must no longer count
	// against a capacity: a variant's units have left its stock. Released and
	// expired ones never count.
	Committed bool
	// After is where the previous batch ended, zero for the first. Rows before
	// it are not read again.
	After time.Time
}

// Purged is what one batch deleted.
type Purged struct {
	Count int64
	// Last is the After of the next batch.
	Last time.Time
}

// PurgeEnded deletes up to limit reservations, of every tenant, in the order of
// their deadlines. It reads about limit rows, however many have ended. It waits
// for no lock: it skips a reservation that another transaction has locked.
func PurgeEnded(ctx context.Context, db pg.Batcher, purge Purge, limit int) (Purged, error) {
	purged, err := pg.ReadInOrder(ctx, db, pgx.RowToStructByName[Purged], purgeSQL,
		purge.Kind, purge.Retention, limit, purge.Committed, purge.After, purge.Within)
	if err != nil {
		return Purged{}, fmt.Errorf("purge ended reservations of %s: %w", purge.Kind, err)
	}
	return purged[0], nil
}
