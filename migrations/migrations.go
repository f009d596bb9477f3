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

	"github.com/holdfast/holdfast/internal/horizon"
)

// RiverSchema is the Postgres schema that holds River's tables.
const RiverSchema = "river"

//go:embed *.sql metered/*.sql
var files embed.FS

// set is a set of migrations, those of one folder.
type set struct {
	files  fs.FS
	record string // the table in which goose records them
}

var (
	ours    = set{files, goose.DefaultTablename}
	metered = set{folder("metered"), "goose_metered_version"}
)

// folder is one of the embedded folders. fs.Sub fails only for an invalid name.
func folder(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err)
	}
	return sub
}

// Up brings the database to the newest schema: River's migrations, then ours,
// each in a transaction of its own. It is safe to call on a database that is up
// to date, while programs use the tables, and when several processes call it at
// once: each waits for the others. It uses two connections beside the pool's.
//
// With [Config.Metered] it makes the tables of package metered, or brings them
// to their newest schema. Call it so after Up without it, whose River the
// package needs. config may be nil.
//
// If ctx ends first, the migration that runs is rolled back, and the error is
// ctx's. Another error may mean that a table was in use all the time; it names
// the oldest transaction on the tables. Another call goes on where this one
// ended.
func Up(ctx context.Context, pool *pgxpool.Pool, config *Config) error {
	c, err := config.withDefaults()
	if err != nil {
		return err
	}
	if err := horizon.RequireOneServer(ctx, pool); err != nil {
		return err
	}
	return c.runExclusively(ctx, pool, func(own *pgxpool.Pool) error {
		if c.Metered {
			return metered.up(ctx, own)
		}
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
		return ours.up(ctx, own)
	})
}

// Down removes everything that Up made with the same [Config.Metered], ours
// first, and all its data. It takes turns with Up, and waits for locks without
// end. config may be nil.
func Down(ctx context.Context, pool *pgxpool.Pool, config *Config) error {
	return withMigrationLock(ctx, pool, func() error {
		if config.isMetered() {
			return metered.down(ctx, pool)
		}
		if err := ours.down(ctx, pool); err != nil {
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

// Pending reports whether the database lacks a migration that Up would apply
// with the same [Config.Metered], one of River's included. It only reads.
// config may be nil.
func Pending(ctx context.Context, pool *pgxpool.Pool, config *Config) (pending bool, err error) {
	if config.isMetered() {
		return metered.pending(ctx, pool)
	}
	pending, err = ours.pending(ctx, pool)
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

// Fingerprint names the schema that Up makes: it changes when a migration does,
// ours or one of River's.
func Fingerprint() (string, error) {
	river, err := riverMigrator(nil)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, m := range river.AllVersions() {
		_, _ = fmt.Fprintln(sum, m.Version, m.SQLUp) // a hash takes every write
	}
	names, err := fs.Glob(ours.files, "*.sql")
	if err != nil {
		return "", err
	}
	for _, name := range names {
		content, err := fs.ReadFile(ours.files, name)
		if err != nil {
			return "", fmt.Errorf("read the embedded migrations: %w", err)
		}
		_, _ = fmt.Fprintln(sum, name, string(content))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// migrationLockKey is the advisory lock that lets one process migrate at a
// time.
const migrationLockKey = 0x686f6c6466617374 // "holdfast"

const migrationLockSQL = `SELECT pg_advisory_lock($1)`

// withMigrationLock migrates while it holds the lock. The lock's connection is
// not one of the pool's: there, waiting callers would take the connections that
// the migrating one needs.
func withMigrationLock(ctx context.Context, pool *pgxpool.Pool, migrate func() error) error {
	config := pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return fmt.Errorf("connect to lock the migrations: %w", err)
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return fmt.Errorf("connect to lock the migrations: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // the lock ends with the connection
	if _, err := conn.Exec(ctx, migrationLockSQL, int64(migrationLockKey)); err != nil {
		return fmt.Errorf("lock the migrations: %w", err)
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

// up applies the migrations that the database lacks.
func (s set) up(ctx context.Context, pool *pgxpool.Pool) error {
	return s.run(pool, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// down reverts all migrations and drops their record.
func (s set) down(ctx context.Context, pool *pgxpool.Pool) error {
	err := s.run(pool, func(p *goose.Provider) error {
		_, err := p.DownTo(ctx, 0)
		return err
	})
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "DROP TABLE "+pgx.Identifier{s.record}.Sanitize()); err != nil {
		return fmt.Errorf("drop the record of migrations %s: %w", s.record, err)
	}
	return nil
}

const recordExistsSQL = `SELECT to_regclass($1) IS NOT NULL`

// pending reports whether the database lacks a migration. It only reads.
func (s set) pending(ctx context.Context, pool *pgxpool.Pool) (pending bool, err error) {
	var recorded bool
	if err := pool.QueryRow(ctx, recordExistsSQL, s.record).Scan(&recorded); err != nil {
		return false, fmt.Errorf("look for the record of migrations %s: %w", s.record, err)
	}
	if !recorded { // goose would make the table
		return true, nil
	}
	err = s.run(pool, func(p *goose.Provider) error {
		pending, err = p.HasPending(ctx)
		return err
	})
	return pending, err
}

func (s set) run(pool *pgxpool.Pool, do func(*goose.Provider) error) error {
	db := stdlib.OpenDBFromPool(pool)
	defer closeQuietly(db)
	p, err := goose.NewProvider(goose.DialectPostgres, db, s.files, goose.WithTableName(s.record))
	if err != nil {
		return fmt.Errorf("read the embedded migrations: %w", err)
	}
	if err := do(p); err != nil {
		return fmt.Errorf("migrate holdfast: %w", err)
	}
	return nil
}

// closeQuietly returns the wrapper's connections to the pool, which stays open;
// there is nothing to do about an error.
func closeQuietly(db *sql.DB) { _ = db.Close() }
