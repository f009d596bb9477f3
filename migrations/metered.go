package migrations

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pressly/goose/v3"
)

// meteredRecord is where goose records the migrations of package metered, apart from the others.
const meteredRecord = "goose_metered_version"

//go:embed metered/*.sql
var meteredFiles embed.FS

// UpMetered makes the tables of package metered with the defaults of Config. See [Config.UpMetered].
func UpMetered(ctx context.Context, pool *pgxpool.Pool) error { return Config{}.UpMetered(ctx, pool) }

// UpMetered makes the tables of package metered, or brings them to their newest schema. They are a set of their own, which
// [Config.Up] leaves alone: a database without metered commands does without them. Call it after Up, whose River the package
// needs. It is as safe to call twice, at once, and while the tables are in use, as Up.
func (c Config) UpMetered(ctx context.Context, pool *pgxpool.Pool) error {
	return c.inTurn(ctx, pool, func(own *pgxpool.Pool) error {
		return withMetered(own, func(p *goose.Provider) error {
			_, err := p.Up(ctx)
			return err
		})
	})
}

// DownMetered removes everything UpMetered made, and all its data. [Down] leaves the set alone.
func DownMetered(ctx context.Context, pool *pgxpool.Pool) error {
	return withTurn(ctx, pool, func() error {
		err := withMetered(pool, func(p *goose.Provider) error {
			_, err := p.DownTo(ctx, 0)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "DROP TABLE "+pgx.Identifier{meteredRecord}.Sanitize()); err != nil {
			return fmt.Errorf("drop the record of metered's migrations: %w", err)
		}
		return nil
	})
}

// PendingMetered reports whether the database lacks a migration of package metered. It only reads.
func PendingMetered(ctx context.Context, pool *pgxpool.Pool) (pending bool, err error) {
	var recorded bool
	if err := pool.QueryRow(ctx, recordExistsSQL, meteredRecord).Scan(&recorded); err != nil {
		return false, fmt.Errorf("look for the record of metered's migrations: %w", err)
	}
	if !recorded { // goose would make the table
		return true, nil
	}
	err = withMetered(pool, func(p *goose.Provider) error {
		pending, err = p.HasPending(ctx)
		return err
	})
	return pending, err
}

func withMetered(pool *pgxpool.Pool, run func(*goose.Provider) error) error {
	set, err := fs.Sub(meteredFiles, "metered")
	if err != nil {
		return fmt.Errorf("read metered's embedded migrations: %w", err)
	}
	return withProvider(pool, set, run, goose.WithTableName(meteredRecord))
}
