package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const clockSQL = `SELECT clock_timestamp()`

// ReadClock returns the database's clock.
func ReadClock(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (now time.Time, err error) {
	if err := db.QueryRow(ctx, clockSQL).Scan(&now); err != nil {
		return now, fmt.Errorf("read the clock: %w", err)
	}
	return now, nil
}

// QueueClock adds a statement to b that reads the database's clock into now. After a
// statement that locks, the transaction has the locks at that time.
func QueueClock(b *pgx.Batch, now *time.Time) {
	b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(now) })
}
