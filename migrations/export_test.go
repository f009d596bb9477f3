package migrations

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

// beforeRequests is the version before the last migration that changes the
// status table.
const beforeRequests = 11

// DownToRequests takes back the last migration that changes the status table,
// and all newer ones.
func DownToRequests(ctx context.Context, pool *pgxpool.Pool) error {
	return withMigrationLock(ctx, pool, func() error {
		return ours.run(pool, func(p *goose.Provider) error {
			_, err := p.DownTo(ctx, beforeRequests)
			return err
		})
	})
}
