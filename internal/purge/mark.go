package purge

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const markSQL = `
INSERT INTO purge_mark (purged_before)
VALUES (clock_timestamp() - $1::interval)
ON CONFLICT (mark) DO UPDATE
SET purged_before = excluded.purged_before
WHERE purge_mark.purged_before < excluded.purged_before`

// Mark records that rows which ended longer ago than retention may be deleted
// from now on. A purge calls it before it deletes any. The mark never moves
// back: a retention that is lengthened later does not bring rows back.
func Mark(ctx context.Context, db *pgxpool.Pool, retention time.Duration) error {
	if _, err := db.Exec(ctx, markSQL, retention); err != nil {
		return fmt.Errorf("mark what is purged: %w", err)
	}
	return nil
}
