package migrations

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/sleep"
)

// Config selects the tables, and bounds how Up waits for tables that other
// transactions have locked. The zero value of a field is its default.
//
// A statement that changes a table waits until every transaction that has used
// the table has ended, and all that come later wait behind it. So it waits for
// LockTimeout only. Then its migration is rolled back, the others go on, and
// the migration is tried again after a second. An autovacuum of the table is
// ended: it begins again later.
type Config struct {
	// Metered selects the tables of package metered in place of all others.
	// They are a separate set: a database without metered commands does not
	// need them.
	Metered bool
	// LockTimeout is how long one statement waits for one lock; default 100 ms,
	// half of what an admission waits.
	LockTimeout time.Duration
	// LockWaitMax is how long a migration is tried again, in all; default 10
	// minutes.
	LockWaitMax time.Duration
	// Log gets a WARN when a migration begins to wait. nil: none is written.
	Log *slog.Logger
}

// errLocked means that a migration did not get its locks within LockWaitMax.
// What was applied before it stays applied.
var errLocked = errors.New("another transaction keeps a table locked")

const (
	lockTimeout = 100 * time.Millisecond
	lockWaitMax = 10 * time.Minute
	// lockPause is the pause between two attempts, long enough for what queued
	// behind the first one.
	lockPause = time.Second
	// vacuumTimeout is above deadlock_timeout, a second by default: Postgres
	// ends an autovacuum for a lock that waits so long.
	vacuumTimeout = 5 * time.Second
)

func (c *Config) isMetered() bool { return c != nil && c.Metered }

func (c *Config) withDefaults() (*Config, error) {
	var own Config
	if c != nil {
		own = *c
	}
	c = &own
	c.LockTimeout = cmp.Or(c.LockTimeout, lockTimeout)
	c.LockWaitMax = cmp.Or(c.LockWaitMax, lockWaitMax)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.LockTimeout < time.Millisecond || c.LockWaitMax < 0 {
		return c, fmt.Errorf("migrations: want lock_timeout (%s) ≥ 1ms and lock_wait_max (%s) ≥ 0", c.LockTimeout, c.LockWaitMax)
	}
	return c, nil
}

// runExclusively migrates while no other process does, on a separate
// connection, whose statements wait for locks as the configuration says.
// migrate may be called again after it failed.
func (c *Config) runExclusively(ctx context.Context, pool *pgxpool.Pool, migrate func(*pgxpool.Pool) error) error {
	own, err := c.open(ctx, pool)
	if err != nil {
		return err
	}
	defer own.Close()
	return withMigrationLock(ctx, pool, func() error { return c.repeat(ctx, own, migrate) })
}

const setLockTimeoutSQL = `SELECT set_config('lock_timeout', $1, $2)`

// open makes a pool of one connection, which bounds how long it waits for
// locks. That is set after connecting, because a pooler may refuse it as a
// parameter of the start.
func (c *Config) open(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Pool, error) {
	config := pool.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 1, 0, 0
	before := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, setLockTimeoutSQL, milliseconds(c.LockTimeout), false)
		return err
	}
	own, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open a connection to migrate: %w", err)
	}
	return own, nil
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// repeat migrates again while a lock is not granted in time.
func (c *Config) repeat(ctx context.Context, own *pgxpool.Pool, migrate func(*pgxpool.Pool) error) error {
	for began, waiting := time.Now(), false; ; waiting = true {
		err := migrate(own)
		if !pg.IsLockTimeout(err) {
			return err
		}
		holder, err := oldestHolder(ctx, own)
		if err != nil {
			return err
		}
		if time.Since(began) >= c.LockWaitMax {
			return fmt.Errorf("migrate holdfast: %w, for %s: %s", errLocked, c.LockWaitMax, holder)
		}
		if !waiting {
			c.Log.WarnContext(ctx, "another transaction keeps a table locked; the migration is tried again",
				"wait_max", c.LockWaitMax.String(), "oldest", holder)
		}
		if err := sleep.For(ctx, lockPause); err != nil {
			return err
		}
		if err := endVacuums(ctx, own); err != nil {
			return err
		}
	}
}

const oldestHolderSQL = `
SELECT l.pid, coalesce(a.application_name, ''), coalesce(a.state, ''), coalesce(clock_timestamp() - a.xact_start, '0')
FROM pg_locks AS l
JOIN pg_class AS c ON c.oid = l.relation
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND c.relkind = 'r' AND n.nspname IN (current_schema(), '` + RiverSchema + `')
ORDER BY a.xact_start
LIMIT 1`

// oldestHolder describes the oldest transaction that has locked a table of the
// two schemas. Postgres does not report which of them a statement waited for.
func oldestHolder(ctx context.Context, db *pgxpool.Pool) (string, error) {
	var pid int
	var application, state string
	var since time.Duration
	err := db.QueryRow(ctx, oldestHolderSQL).Scan(&pid, &application, &state, &since)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "it has ended since then, or is a prepared one", nil
	case err != nil:
		return "", fmt.Errorf("look for the transaction that keeps a table locked: %w", err)
	}
	return fmt.Sprintf("the oldest transaction on the tables is that of process %d (%q, %s), %s old", pid, application, state, since.Round(time.Millisecond)), nil
}

const vacuumedSQL = `
SELECT DISTINCT l.relation::regclass::text
FROM pg_locks AS l
JOIN pg_class AS c ON c.oid = l.relation
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE l.locktype = 'relation' AND l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND c.relkind = 'r' AND n.nspname IN (current_schema(), '` + RiverSchema + `') AND pg_has_role(c.relowner, 'USAGE')
LIMIT 100`

// endVacuums has Postgres end the autovacuums of our tables. Each could last
// for many minutes, and is ended only for a lock that waits longer than
// LockTimeout. This one waits that long and lets readers and writers pass: it
// conflicts with neither.
func endVacuums(ctx context.Context, db *pgxpool.Pool) error {
	rows, _ := db.Query(ctx, vacuumedSQL)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for vacuums: %w", err)
	}
	for _, table := range tables {
		err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, setLockTimeoutSQL, milliseconds(vacuumTimeout), true); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `LOCK TABLE `+table+` IN SHARE UPDATE EXCLUSIVE MODE`)
			return err
		})
		if err != nil && !pg.IsLockTimeout(err) { // a VACUUM of an operator, or one against wraparound, is not ended
			return fmt.Errorf("end the vacuum of %s: %w", table, err)
		}
	}
	return nil
}
