package queues

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/migrations"
)

const (
	// wakesBatch is how many wakes one statement deletes, wakesMax how many one purge does.
	wakesBatch = 5_000
	wakesMax   = 500_000
)

// purgeWakesSQL leaves out wakes that are being worked.
const purgeWakesSQL = `
DELETE FROM ` + migrations.RiverSchema + `.river_job
WHERE id IN (
    SELECT j.id
    FROM ` + migrations.RiverSchema + `.river_job j
    WHERE j.kind = 'holdfast_wake' AND j.state <> 'running' AND j.created_at < clock_timestamp() - $1::interval
    ORDER BY j.id
    LIMIT $2
    FOR UPDATE SKIP LOCKED)`

// PurgeWakes deletes wakes that are older than retention. Where no River client works the lanes, no other process completes
// or deletes them. more means that it ended at its bound.
func PurgeWakes(ctx context.Context, db *pgxpool.Pool, retention time.Duration) (deleted int64, more bool, err error) {
	for deleted < wakesMax {
		tag, err := db.Exec(ctx, purgeWakesSQL, retention, wakesBatch)
		if err != nil {
			return deleted, false, fmt.Errorf("purge wakes: %w", err)
		}
		deleted += tag.RowsAffected()
		if tag.RowsAffected() < wakesBatch {
			return deleted, false, nil
		}
	}
	return deleted, true, nil
}
