package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// purgeSQL looks at a bounded piece of a stream, in order, and deletes what is old in it. A piece in which anything is old
// may be followed by more: a request that was decided long after its neighbours must not hold up all that came after it.
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
    RETURNING r.sequence
)
SELECT (SELECT count(*) FROM deleted), coalesce(max(sequence), $5), count(*) = $4 AND bool_or(old)
FROM piece`

// Purged is what one purge of a piece of a stream did.
type Purged struct {
	Deleted int64
	// Last is where the next piece begins.
	Last int64
	// More says that the next piece may hold old rows too.
	More bool
}

// PurgeStream deletes what is finished and was last touched longer ago than retention from the next piece rows of one
// stream behind the sequence number after. With a request goes the memory of its idempotency key.
func PurgeStream(ctx context.Context, db Querier, w Wake, retention time.Duration, after int64, piece int) (Purged, error) {
	rows, err := db.Query(ctx, purgeSQL, w.Lane, w.Slot, retention, piece, after)
	if err != nil {
		return Purged{}, fmt.Errorf("purge the %s stream %d: %w", w.Lane, w.Slot, err)
	}
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Purged])
	if err != nil {
		return Purged{}, fmt.Errorf("purge the %s stream %d: %w", w.Lane, w.Slot, err)
	}
	return p, nil
}
