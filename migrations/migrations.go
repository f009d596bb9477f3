package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// RiverSchema is the Postgres schema that holds River's tables.
const RiverSchema = "river"

//go:embed *.sql
var files embed.FS

// Up brings the database to the newest schema: River's migrations, then ours. It is safe to call on a database that is
// up to date, and when several processes call it at once: goose takes a lock in a table of its own, and River's
// migrations run under the same turn.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	return withTurn(ctx, pool, func() error {
		schema := "CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{RiverSchema}.Sanitize()
		if _, err := pool.Exec(ctx, schema); err != nil {
			return fmt.Errorf("create schema %s: %w", RiverSchema, err)
		}
		river, err := riverMigrator(pool)
		if err != nil {
			return err
		}
		if _, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrate river up: %w", err)
		}
		return withGoose(pool, func(p *goose.Provider) error {
			_, err := p.Up(ctx)
			return err
		})
	})
}

// Down removes everything Up made, ours first. It destroys all data.
func Down(ctx context.Context, pool *pgxpool.Pool) error {
	return withTurn(ctx, pool, func() error {
		err := withGoose(pool, func(p *goose.Provider) error {
			_, err := p.DownTo(ctx, 0)
			return err
		})
		if err != nil {
			return err
		}
		river, err := riverMigrator(pool)
		if err != nil {
			return err
		}
		if _, err := river.Migrate(ctx, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1}); err != nil {
			return fmt.Errorf("migrate river down: %w", err)
		}
		_, err = pool.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{RiverSchema}.Sanitize())
		return err
	})
}

// Pending reports whether the database lacks a migration that this program carries.
func Pending(ctx context.Context, pool *pgxpool.Pool) (pending bool, err error) {
	err = withGoose(pool, func(p *goose.Provider) error {
		pending, err = p.HasPending(ctx)
		return err
	})
	return pending, err
}

// turnKey is the advisory lock that lets one process migrate at a time. It is held by a transaction that does nothing
// else, because a migration opens transactions of its own.
const turnKey = 0x686f6c6466617374 // "holdfast"

func withTurn(ctx context.Context, pool *pgxpool.Pool, migrate func() error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(turnKey)); err != nil {
			return fmt.Errorf("wait for a turn to migrate: %w", err)
		}
		return migrate()
	})
}

func riverMigrator(pool *pgxpool.Pool) (*rivermigrate.Migrator[pgx.Tx], error) {
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{
		Schema: RiverSchema,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("prepare river's migrations: %w", err)
	}
	return m, nil
}

func withGoose(pool *pgxpool.Pool, run func(*goose.Provider) error) error {
	db := stdlib.OpenDBFromPool(pool)
	defer closeQuietly(db)
	p, err := goose.NewProvider(goose.DialectPostgres, db, files)
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	if err := run(p); err != nil {
		return fmt.Errorf("migrate holdfast: %w", err)
	}
	return nil
}

// closeQuietly returns the wrapper's connections to the pool, which stays open; there is nothing to do about an error.
func closeQuietly(db *sql.DB) { _ = db.Close() }
