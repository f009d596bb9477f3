package migrations

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

// DownOne takes the newest of our migrations back.
func DownOne(ctx context.Context, pool *pgxpool.Pool) error {
	return withTurn(ctx, pool, func() error {
		return withGoose(pool, func(p *goose.Provider) error {
			_, err := p.Down(ctx)
			return err
		})
	})
}
