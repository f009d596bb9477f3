package migrations

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
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

// Up brings the database to the newest schema with the defaults of Config. See [Config.Up].
func Up(ctx context.Context, pool *pgxpool.Pool) error { return Config{}.Up(ctx, pool) }

// Up brings the database to the newest schema: River's migrations, then ours, each in a transaction of its own. It is safe
// to call on a database that is up to date, while programs use the tables, and when several processes call it at once: each
// waits for its turn. It uses two connections beside the pool's.
//
// If ctx ends first, the migration that runs is rolled back, and the error is ctx's. With an error that is ErrLocked a table
// was in use all the time. Another call goes on where this one ended.
func (c Config) Up(ctx context.Context, pool *pgxpool.Pool) error {
	return c.inTurn(ctx, pool, func(own *pgxpool.Pool) error {
		schema := "CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{RiverSchema}.Sanitize()
		if _, err := own.Exec(ctx, schema); err != nil {
			return fmt.Errorf("create schema %s: %w", RiverSchema, err)
		}
		river, err := riverMigrator(own)
		if err != nil {
			return err
		}
		if _, err := river.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return fmt.Errorf("migrate river up: %w", err)
		}
		return withGoose(own, func(p *goose.Provider) error {
			_, err := p.Up(ctx)
			return err
		})
	})
}

// Down removes everything Up made, ours first. It destroys all data. It takes turns with Up, and waits for locks without end.
func Down(ctx context.Context, pool *pgxpool.Pool) error {
	return withTurn(ctx, pool, func() error {
		err := withGoose(pool, func(p *goose.Provider) error {
			_, err := p.DownTo(ctx, 0)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "DROP TABLE "+goose.DefaultTablename); err != nil {
			return fmt.Errorf("drop the record of migrations: %w", err)
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

const recordExistsSQL = `SELECT to_regclass($1) IS NOT NULL`

// Pending reports whether the database lacks a migration that this program carries, one of River's included. It only
// reads.
func Pending(ctx context.Context, pool *pgxpool.Pool) (pending bool, err error) {
	var recorded bool
	if err := pool.QueryRow(ctx, recordExistsSQL, goose.DefaultTablename).Scan(&recorded); err != nil {
		return false, fmt.Errorf("look for the record of migrations: %w", err)
	}
	if !recorded { // goose would make the table
		return true, nil
	}
	err = withGoose(pool, func(p *goose.Provider) error {
		pending, err = p.HasPending(ctx)
		return err
	})
	if err != nil || pending {
		return pending, err
	}
	river, err := riverMigrator(pool)
	if err != nil {
		return false, err
	}
	validated, err := river.Validate(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("validate river's migrations: %w", err)
	}
	return !validated.OK, nil
}

// Fingerprint names the schema that Up makes: it changes when a migration does, ours or one of River's.
func Fingerprint() (string, error) {
	river, err := riverMigrator(nil)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, m := range river.AllVersions() {
		_, _ = fmt.Fprintln(sum, m.Version, m.SQLUp) // a hash takes every write
	}
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		content, err := files.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read the embedded migrations: %w", err)
		}
		_, _ = fmt.Fprintln(sum, name, string(content))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// turnKey is the advisory lock that lets one process migrate at a time.
const turnKey = 0x686f6c6466617374 // "holdfast"

const waitForTurnSQL = `SELECT pg_advisory_lock($1)`

// withTurn migrates while it holds the lock. The lock's connection is not one of the pool's: waiting there, the callers
// who wait would take from the one whose turn it is the connections it needs.
func withTurn(ctx context.Context, pool *pgxpool.Pool, migrate func() error) error {
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return fmt.Errorf("connect for a turn to migrate: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return fmt.Errorf("connect for a turn to migrate: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the lock ends with the connection
	if _, err := conn.Exec(ctx, waitForTurnSQL, int64(turnKey)); err != nil {
		return fmt.Errorf("wait for a turn to migrate: %w", err)
	}
	return migrate()
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
	return withProvider(pool, files, run)
}

// withProvider runs one set of migrations.
func withProvider(pool *pgxpool.Pool, set fs.FS, run func(*goose.Provider) error, options ...goose.ProviderOption) error {
	db := stdlib.OpenDBFromPool(pool)
	defer closeQuietly(db)
	p, err := goose.NewProvider(goose.DialectPostgres, db, set, options...)
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
