package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry/export"
	"github.com/holdfast/holdfast/migrations"
)

// sessionParameters apply to every connection unless the URL sets another
// value. They free the locks of an owner that stalled, or whose machine is
// gone, within about ten seconds, and end statements whose caller is gone.
var sessionParameters = map[string]string{
	"default_transaction_isolation": "read committed", // what the packages are written for
	// Tables grow faster than autovacuum analyses them. A generic plan made
	// while a table was empty scans the whole table, by the wrong index, until
	// then. Planning takes a tenth of a millisecond. Only the pools on the hot
	// path avoid that cost.
	"plan_cache_mode": "force_custom_plan",
	// The planner's cost estimate of a claim grows with the table, although the
	// claim takes a few milliseconds. JIT compilation would take hundreds.
	"jit": "off",
	// An owner that was frozen between two statements.
	"idle_in_transaction_session_timeout": "5s",
	// An owner whose process has ended, while its statement waits for a lock.
	"client_connection_check_interval": "1s",
	// An owner whose machine is gone, or that no longer reads.
	"tcp_keepalives_idle":     "4",
	"tcp_keepalives_interval": "2",
	"tcp_keepalives_count":    "3",
	"tcp_user_timeout":        "10000",
}

// shortStatements bounds each statement. The bound is above the 10 s that a
// call, or the transaction of a drain, may take.
var shortStatements = map[string]string{"statement_timeout": "15s"}

// shortLocks also bounds how long a statement waits for a lock. An admission
// waits only for a key that is in use.
var shortLocks = map[string]string{"statement_timeout": "15s", "lock_timeout": "200ms"}

// pingTimeout is how long a connection that was idle for more than a second may
// take to show that it still works. After that the pool uses another one.
const pingTimeout = time.Second

// pool is the purpose of a pool of connections.
type pool struct {
	// name follows the program's in pg_stat_activity and telemetry.
	name string
	// conns is the maximum number of connections. Fewer are better: connections
	// block each other at hot rows.
	conns int
	// parameters are added to the session's.
	parameters map[string]string
	// hotPath pools only admit or drain; see pg.ForceGenericPlans.
	hotPath bool
	// asIs pools do not raise a sequence that is behind its rows.
	asIs bool
}

// open makes a pool and waits until it has a connection; see await.
func (p *Program) open(ctx context.Context, use pool) (*pgxpool.Pool, error) {
	if p.Config.Database.URL == "" {
		return nil, config.ErrNoDatabase
	}
	c, err := config.ParseDatabase(p.Config.Database.URL)
	if err != nil {
		return nil, err
	}
	parameters := maps.Clone(sessionParameters)
	if use.hotPath {
		delete(parameters, "plan_cache_mode")
		pg.ForceGenericPlans(c)
	}
	maps.Copy(parameters, use.parameters)
	parameters["application_name"] = p.Name
	maps.Copy(parameters, c.ConnConfig.RuntimeParams)
	c.ConnConfig.RuntimeParams = parameters
	c.ConnConfig.ConnectTimeout = cmp.Or(c.ConnConfig.ConnectTimeout, 5*time.Second)
	c.ConnConfig.DialFunc = dialer.DialContext
	boundLinks(c)
	c.MaxConns = int32(use.conns)
	c.PingTimeout = pingTimeout
	if !use.asIs {
		c.AfterConnect = p.raiseSequences
	}
	if export.TracesAsked() {
		c.ConnConfig.Tracer = otelpgx.NewTracer(otelpgx.WithDisableAcquireTracer())
	}
	db, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := p.await(ctx, func(ctx context.Context) error { return p.ping(ctx, db) }); err != nil {
		db.Close()
		return nil, err
	}
	attributes := []attribute.KeyValue{attribute.String("pool", use.name)}
	if p.cell != "" {
		attributes = append(attributes, attribute.String("cell", p.cell))
	}
	if err := otelpgx.RecordStats(db, otelpgx.WithStatsAttributes(attributes...)); err != nil {
		p.Log.WarnContext(ctx, "the pool is not measured", "pool", use.name, "error", err)
	}
	return db, nil
}

// ping connects once, and explains the errors of a first connection.
func (p *Program) ping(ctx context.Context, db *pgxpool.Pool) error {
	err := db.Ping(ctx)
	switch {
	case err == nil:
		return nil
	case pg.Code(err) == "42704": // undefined_object: a parameter of the session
		return fmt.Errorf("the database is older than Postgres 14, the oldest that Holdfast runs on: %w", err)
	case pg.Code(err) == "08P01" && strings.Contains(err.Error(), "unsupported startup parameter"): // PgBouncer
		return horizon.ErrPooled
	default:
		return fmt.Errorf("connect to the database that %s names: %w", p.variable(), err)
	}
}

// raiseSequences raises the sequences of a database that was restored or copied
// without their last values, before the connection can draw a number. It runs
// for each connection, because the server may be another one than the last: a
// replica that was promoted. Without it, a new request is decided before those
// that were accepted earlier, and a subscription misses a record.
func (p *Program) raiseSequences(ctx context.Context, conn *pgx.Conn) error {
	for _, numbers := range requestrows.Sequences {
		found, err := numbers.Raise(ctx, conn)
		switch code := pg.Code(err); {
		case code == "42P01" || code == "42703": // undefined_table, undefined_column: requireMigrated reports it
			return nil
		case err != nil:
			return err
		case found.Behind():
			p.Log.ErrorContext(ctx, "a sequence was behind the rows of its table and is raised: the database was restored or copied without the last value of the sequence",
				"sequence", numbers.Sequence, "drawn", found.Drawn, "raised_to", found.Highest)
		}
	}
	return nil
}

const durabilitySQL = `
SELECT current_setting('fsync'), current_setting('synchronous_commit'), pg_is_in_recovery()`

var errStandby = errors.New("the database is a standby: name the primary")

// requireDurable refuses a database that can lose committed transactions, and
// returns errStandby for a standby. For a standby it also closes the pool's
// connections, so that another attempt connects to the server that DATABASE_URL
// names by then.
func (p *Program) requireDurable(ctx context.Context, db *pgxpool.Pool) error {
	var fsync, synchronousCommit string
	var standby bool
	if err := db.QueryRow(ctx, durabilitySQL).Scan(&fsync, &synchronousCommit, &standby); err != nil {
		return fmt.Errorf("ask how durable the database is: %w", err)
	}
	if standby {
		db.Reset()
		return errStandby
	}
	for _, setting := range []struct{ name, value string }{{"fsync", fsync}, {"synchronous_commit", synchronousCommit}} {
		switch {
		case setting.value != "off":
		case p.Config.Database.AllowUnsafe:
			p.Log.WarnContext(ctx, "the database is not durable: a crash loses what was accepted", "setting", setting.name)
		default:
			return fmt.Errorf("the database runs with %s = off, so a crash would lose requests that were accepted: turn it on, or set ALLOW_UNSAFE_DATABASE=true", setting.name)
		}
	}
	return nil
}

// ErrPending means that the database lacks migrations.
var ErrPending = errors.New("the database lacks migrations of this version: run `oneshot migrate` or `holdfast migrate` with the same DATABASE_URL or CELLS and METERED_COMMANDS_ENABLED")

// openReady is open for a program that serves: it requires a durable and
// migrated database.
func (p *Program) openReady(ctx context.Context, use pool) (_ *pgxpool.Pool, err error) {
	db, err := p.open(ctx, use)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			db.Close()
		}
	}()
	for _, step := range []func(context.Context, *pgxpool.Pool) error{p.requireDurable, p.requireMigrated, requireFit} {
		if err := p.await(ctx, func(ctx context.Context) error { return step(ctx, db) }); err != nil {
			return nil, err
		}
	}
	return db, nil
}

// requireFit proves that the database is one Postgres server.
func requireFit(ctx context.Context, db *pgxpool.Pool) error {
	return requestrows.Sequences[0].Probe(ctx, db)
}

func (p *Program) requireMigrated(ctx context.Context, db *pgxpool.Pool) error {
	pending, err := p.pending(ctx, db)
	if err == nil && pending {
		err = ErrPending
	}
	return err
}

// pending reports whether the database lacks a migration, also one of metered's
// if commands are metered.
func (p *Program) pending(ctx context.Context, db *pgxpool.Pool) (bool, error) {
	pending, err := migrations.Pending(ctx, db, nil)
	if err != nil || pending || !p.Config.Metered.On {
		return pending, err
	}
	return migrations.Pending(ctx, db, &migrations.Config{Metered: true})
}

// toolPool is the pool of a command whose statements have no time limit.
// verifyPool reports a sequence that is behind, and migratePool may find an
// older schema. A migration opens two connections more.
var (
	toolPool    = pool{name: "tool", conns: 4, parameters: map[string]string{"idle_in_transaction_session_timeout": "0"}}
	verifyPool  = pool{name: "verify", conns: 4, parameters: toolPool.parameters, asIs: true}
	migratePool = pool{name: "migrate", conns: 3, parameters: toolPool.parameters, asIs: true}
)

// OpenTool opens a migrated database for one command of an operator.
//
// Errors: *UsageError where CELLS names several.
func (p *Program) OpenTool(ctx context.Context) (*pgxpool.Pool, error) {
	own, err := p.only()
	if err != nil {
		return nil, err
	}
	return own.openTool(ctx, toolPool)
}

func (p *Program) openTool(ctx context.Context, use pool) (*pgxpool.Pool, error) {
	db, err := p.open(ctx, use)
	if err != nil {
		return nil, p.inCell(err)
	}
	if err := p.await(ctx, func(ctx context.Context) error { return p.requireMigrated(ctx, db) }); err != nil {
		db.Close()
		return nil, p.inCell(err)
	}
	return db, nil
}

// Migrate brings the database of each cell to this program's schema; see migrate.
// migrated reports whether something was missing in one of them.
func (p *Program) Migrate(ctx context.Context) (migrated bool, err error) {
	for _, own := range p.inCells() {
		changed, err := own.migrate(ctx)
		migrated = migrated || changed
		if err != nil {
			return migrated, own.inCell(err)
		}
	}
	return migrated, nil
}

// migrate brings the database to this program's schema, including the tables of
// metered commands if they are on, and gives the hot lane its slots. Several
// processes may call it at once, and while programs use the tables; see
// [migrations.Config]. migrated reports whether something was missing. If ctx
// ends first, the error is ctx's, and another call continues.
func (p *Program) migrate(ctx context.Context) (migrated bool, err error) {
	db, err := p.open(ctx, migratePool)
	if err != nil {
		return false, err
	}
	defer db.Close()
	err = p.await(ctx, func(ctx context.Context) error {
		if err := p.requireDurable(ctx, db); err != nil {
			return err
		}
		migrated, err = p.pending(ctx, db)
		return err
	})
	if err != nil {
		return false, err
	}
	// A migration may take long. What was applied before an attempt failed is
	// not applied again.
	err = p.awaitLong(ctx, func() error {
		if err := migrations.Up(ctx, db, &migrations.Config{Log: p.Log}); err != nil || !p.Config.Metered.On {
			return err
		}
		return migrations.Up(ctx, db, &migrations.Config{Log: p.Log, Metered: true})
	})
	if err != nil {
		return false, err
	}
	return migrated, nil
}

// closeMax is how long pools may take to close. The end of the process closes
// connections that are still open because the database is silent or they are in
// use.
const closeMax = time.Second

// closePools closes the pools that are not nil.
func closePools(pools ...*pgxpool.Pool) {
	closed := make(chan struct{}, len(pools))
	waiting := 0
	for _, db := range pools {
		if db != nil {
			waiting++
			go func() {
				db.Close()
				closed <- struct{}{}
			}()
		}
	}
	timer := time.NewTimer(closeMax)
	defer timer.Stop()
	for range waiting {
		select {
		case <-closed:
		case <-timer.C:
			return
		}
	}
}
