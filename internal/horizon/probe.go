package horizon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// UnfitError means that the database cannot keep the promises: it is not one
// Postgres server, or the connections do not stay with their sessions.
type UnfitError struct{ Reason string }

func (e *UnfitError) Error() string {
	return "the database cannot keep Holdfast's promises: " + e.Reason + " (docs/scaling.md)"
}

// distributed are the databases that speak the protocol of Postgres and spread
// one database over several servers, by what version() contains.
var distributed = []struct{ version, name, breaks string }{
	{"-YB-", "YugabyteDB", "its sequences hand each connection a block of numbers, so requests would not be decided in the order in which they were accepted"},
	{"CockroachDB", "CockroachDB", "it has no advisory locks that others wait for, and no transaction ids, so accepted requests would be lost"},
}

const citusBreaks = "a number drawn, a lock and a clock belong to the coordinator or to a node, so accepted requests would be lost"

const nameSQL = `SELECT version(), EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus')`

// RequireOneServer refuses a distributed database by its name.
//
// Errors: *UnfitError, and those of the database.
func RequireOneServer(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var version string
	var citus bool
	if err := db.QueryRow(ctx, nameSQL, pgx.QueryExecModeSimpleProtocol).Scan(&version, &citus); err != nil {
		return fmt.Errorf("read the database's version: %w", err)
	}
	return refuseByName(version, citus)
}

func refuseByName(version string, citus bool) error {
	refuse := func(name, breaks string) error {
		return &UnfitError{fmt.Sprintf("it is %s: %s; use one Postgres, or several as cells", name, breaks)}
	}
	if citus {
		return refuse("Citus", citusBreaks)
	}
	for _, d := range distributed {
		if strings.Contains(version, d.version) {
			return refuse(d.name, d.breaks)
		}
	}
	return nil
}

// probeAttempts is how often the probe is tried: a clock that is set back in
// between looks like two clocks.
const probeAttempts = 3

// Probe proves with two connections of the pool what the promises rest on: each
// keeps its session, one sees the other's lock at once, a number that is drawn
// is the last one drawn for both, a running transaction is not below the
// horizon, and both read one clock. It draws a number of the sequence, which is
// then missing in the table, and writes nothing. A pool of one connection is not
// probed.
//
// Errors: *UnfitError, and those of the database.
func (n Numbers) Probe(ctx context.Context, pool *pgxpool.Pool) error {
	if pool.Config().MaxConns < 2 {
		return nil
	}
	err := pool.AcquireFunc(ctx, func(a *pgxpool.Conn) error {
		return pool.AcquireFunc(ctx, func(b *pgxpool.Conn) error { return n.probe(ctx, a.Conn(), b.Conn()) })
	})
	if _, unfit := errors.AsType[*UnfitError](err); err != nil && !unfit {
		return fmt.Errorf("probe the database: %w", err)
	}
	return err
}

func (n Numbers) probe(ctx context.Context, a, b *pgx.Conn) error {
	err := RequireOneServer(ctx, a)
	for attempt := 0; err == nil && attempt < probeAttempts; attempt++ {
		err = n.attempt(ctx, a, b)
		if !errors.Is(err, errClocks) {
			break
		}
		err = nil
	}
	return err
}

var errClocks = &UnfitError{"two of its connections read different clocks, or the clock runs back"}

// session is what one connection sees, of itself and of the other.
type session struct {
	at     time.Time
	pid    int
	drawn  int64
	lowest *int64
	// xid is the transaction's id, and xmin that of its snapshot.
	xid, xmin int64
}

// attempt runs a transaction of each connection: b's begins and ends while a's
// is under way.
func (n Numbers) attempt(ctx context.Context, a, b *pgx.Conn) error {
	var before, writer, reader, after session
	err := inTransaction(ctx, a, func(ta pgx.Tx) error {
		return inTransaction(ctx, b, func(tb pgx.Tx) error {
			if err := n.look(ctx, tb, &before); err != nil {
				return err
			}
			if _, err := ta.Exec(ctx, `SELECT `+EnterSequence+` FROM `+n.Sequence, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			if _, err := ta.Exec(ctx, `SELECT nextval('`+n.Sequence+`')`, pgx.QueryExecModeSimpleProtocol); err != nil {
				return err
			}
			return errors.Join(n.look(ctx, ta, &writer), n.look(ctx, tb, &reader), n.look(ctx, ta, &after))
		})
	})
	if err != nil {
		return err
	}
	if err := keepsSession(ctx, b, reader.pid); err != nil {
		return err
	}
	switch {
	case reader.lowest == nil || *reader.lowest >= writer.drawn:
		return &UnfitError{"an advisory lock of one connection is not seen by another, so accepted requests would be lost"}
	case writer.drawn <= before.drawn || reader.drawn < writer.drawn:
		return &UnfitError{"a number that one connection draws is not the last one drawn for another, so requests would not be decided in the order in which they were accepted"}
	case reader.xmin > writer.xid:
		return &UnfitError{"the xid horizon of one connection is past the running transaction of another, so readers of the record would miss rows"}
	case reader.at.Before(writer.at) || after.at.Before(reader.at):
		return errClocks
	}
	return nil
}

// look reads what the transaction sees, and gives it an id.
func (n Numbers) look(ctx context.Context, tx pgx.Tx, s *session) error {
	sql := `SELECT ` + CurrentXID + `::text::bigint, ` + Xmin + `::text::bigint, pg_backend_pid(), ` + Drawn + `, ` + LowestWriter +
		`, clock_timestamp() FROM ` + n.Sequence
	return tx.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&s.xid, &s.xmin, &s.pid, &s.drawn, &s.lowest, &s.at)
}

// ErrPooled means that the connections do not stay with their sessions.
var ErrPooled = &UnfitError{"a pooler is in the way that does not keep sessions, such as PgBouncer with pool_mode = transaction: " +
	"notifications and the settings of a session get lost; connect to the server directly"}

// keepsSession runs two transactions more. A pooler that hands out the server's
// connections by transaction has two that are idle now, of which that of conn has
// been idle for longer. Whether it takes the one that was used last or first, one
// of the two transactions gets the other one.
func keepsSession(ctx context.Context, conn *pgx.Conn, pid int) error {
	for range 2 {
		now := 0
		if err := conn.QueryRow(ctx, `SELECT pg_backend_pid()`, pgx.QueryExecModeSimpleProtocol).Scan(&now); err != nil {
			return err
		}
		if now != pid {
			return ErrPooled
		}
	}
	return nil
}

// inTransaction rolls back at the end, because there is nothing to keep.
func inTransaction(ctx context.Context, conn *pgx.Conn, work func(pgx.Tx) error) error {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return err
	}
	err = work(tx)
	if failed := tx.Rollback(context.WithoutCancel(ctx)); err == nil {
		err = failed
	}
	return err
}

// Same reports whether two pools lead to one database, by whatever names: a lock
// that is taken over one is seen over the other.
func Same(ctx context.Context, one, other *pgxpool.Pool) (same bool, err error) {
	const lockSQL = `SELECT pg_advisory_xact_lock($1)`
	const takeSQL = `SELECT NOT pg_try_advisory_xact_lock($1)`
	err = pgx.BeginFunc(ctx, one, func(tx pgx.Tx) error {
		key := -time.Now().UnixNano() // those of EnterSequence are above zero
		if _, err := tx.Exec(ctx, lockSQL, key); err != nil {
			return err
		}
		return other.QueryRow(ctx, takeSQL, key).Scan(&same)
	})
	if err != nil {
		return false, fmt.Errorf("compare two databases: %w", err)
	}
	return same, nil
}
