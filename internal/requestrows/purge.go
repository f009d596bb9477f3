package requestrows

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
)

// purgeSQL reads a bounded piece of a stream, in order, and deletes the
// finished rows in it that are old and whose reservation is not held. The next
// piece may have old rows if any row of this one is old, deleted or not: a
// request that was decided long after its neighbours, or whose hold is live,
// must not block the purge of the rows behind it.
const purgeSQL = `
WITH piece AS MATERIALIZED (
    SELECT r.tenant_id, r.request_id, r.sequence,
           r.status IN ('done', 'failed') AS finished, r.updated_at < clock_timestamp() - $3::interval AS old
    FROM reservation_requests r
    WHERE r.lane = $1 AND r.slot = $2 AND r.sequence > $5
    ORDER BY r.sequence
    LIMIT $4
), deleted AS (
    DELETE FROM reservation_requests r
    USING piece
    WHERE r.tenant_id = piece.tenant_id AND r.request_id = piece.request_id AND piece.finished AND piece.old
      AND NOT EXISTS (SELECT FROM reservations h
                      WHERE h.tenant_id = piece.tenant_id AND h.reservation_id = piece.request_id AND h.status = 'held')
    RETURNING r.sequence
)
SELECT (SELECT count(*) FROM deleted), coalesce(max(sequence), $5), count(*) = $4 AND bool_or(old)
FROM piece`

// Purged reports the purge of one piece of a stream.
type Purged struct {
	Deleted int64
	// Last is the sequence number after which the next piece begins.
	Last int64
	// More means that the next piece may have old rows too.
	More bool
}

// PurgeStream reads the next piece rows of one stream, behind the sequence
// number after. It deletes those that are finished and were last updated longer
// ago than retention, unless their reservation is held. A deleted request's
// idempotency key is free again.
func PurgeStream(ctx context.Context, db Querier, stream lanes.Stream, retention time.Duration, after int64, piece int) (Purged, error) {
	rows, err := db.Query(ctx, purgeSQL, stream.Lane, stream.Slot, retention, piece, after)
	if err != nil {
		return Purged{}, fmt.Errorf("purge the %s stream %d: %w", stream.Lane, stream.Slot, err)
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Purged])
	if err != nil {
		return Purged{}, fmt.Errorf("purge the %s stream %d: %w", stream.Lane, stream.Slot, err)
	}
	return p, nil
}
