package stage_test

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/chaos/stage"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// lab is a database, and a connection to it through a route.
type lab struct {
	db    *pgxpool.Pool // a pool that does not use the route
	wire  *stage.Wire
	route *stage.Route
	t     *testing.T
	via   *pgx.ConnConfig
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{db: pgtest.New(t), t: t}
	l.exec(`CREATE TABLE reservations_probe (probe text PRIMARY KEY)`)
	config := l.db.Config().ConnConfig.Copy()
	address := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	if strings.HasPrefix(config.Host, "/") {
		address = fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port)
	}
	l.wire = stage.NewWire()
	t.Cleanup(l.wire.Close)
	l.wire.SetUpstream(address)
	l.via = config
	return l.again(t)
}

// again returns the same database through another route.
func (l *lab) again(t *testing.T) *lab {
	t.Helper()
	route, err := l.wire.NewRoute()
	pgtest.Must(t, err)
	host, port, err := net.SplitHostPort(route.Address())
	pgtest.Must(t, err)
	number, err := strconv.Atoi(port)
	pgtest.Must(t, err)
	via := l.via.Copy()
	via.Host, via.Port, via.Fallbacks, via.TLSConfig = host, uint16(number), nil, nil
	return &lab{db: l.db, wire: l.wire, route: route, via: via, t: t}
}

func (l *lab) exec(sql string) {
	l.t.Helper()
	_, err := l.db.Exec(l.t.Context(), sql)
	pgtest.Must(l.t, err)
}

func (l *lab) connect() *pgx.Conn {
	l.t.Helper()
	conn, err := pgx.ConnectConfig(l.t.Context(), l.via)
	pgtest.Must(l.t, err)
	l.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (l *lab) has(probe string) (found bool) {
	l.t.Helper()
	pgtest.Must(l.t, l.db.QueryRow(l.t.Context(), `SELECT EXISTS (SELECT FROM reservations_probe WHERE probe = $1)`, probe).Scan(&found))
	return found
}

// The text contains the name of a table on which answers depend.
const insertSQL = `INSERT INTO reservations_probe (probe) SELECT $1::text WHERE NOT EXISTS (SELECT FROM reservations)`

// commits are the ways in which programs commit.
var commits = map[string]func(context.Context, *pgx.Conn, string) error{
	"a transaction": func(ctx context.Context, conn *pgx.Conn, probe string) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insertSQL, probe)
			return err
		})
	},
	"a pipeline": func(ctx context.Context, conn *pgx.Conn, probe string) error {
		b := &pgx.Batch{}
		b.Queue(`SELECT 1`)
		b.Queue(insertSQL, probe)
		return conn.SendBatch(ctx, b).Close()
	},
	"a pipeline with its COMMIT": func(ctx context.Context, conn *pgx.Conn, probe string) error {
		b := &pgx.Batch{}
		b.Queue(`BEGIN`)
		b.Queue(insertSQL, probe)
		b.Queue(`COMMIT`)
		return conn.SendBatch(ctx, b).Close()
	},
	"a statement": func(ctx context.Context, conn *pgx.Conn, probe string) error {
		_, err := conn.Exec(ctx, insertSQL, probe)
		return err
	},
	// It is slow enough that the CancelRequest of a driver that has lost its
	// connection would arrive first.
	"a slow statement": func(ctx context.Context, conn *pgx.Conn, probe string) error {
		_, err := conn.Exec(ctx, insertSQL+` AND pg_sleep(0.3) IS NOT NULL`, probe)
		return err
	},
}

// A COMMIT that is cut fails. It takes effect if it was delivered. The next
// COMMIT passes.
func TestCutsCommits(t *testing.T) {
	t.Parallel()
	all := newLab(t)
	for name, commit := range commits {
		for mode, delivered := range map[stage.Mode]bool{stage.Before: false, stage.Midway: true, stage.Unheard: true} {
			t.Run(fmt.Sprintf("%s, cut %d", name, mode), func(t *testing.T) {
				t.Parallel()
				l := all.again(t)
				before, cut, after := t.Name()+" before", t.Name()+" cut", t.Name()+" after"
				conn := l.connect()
				pgtest.Must(t, commit(t.Context(), conn, before))
				end := l.route.Cut(mode, 1)
				defer end()
				if err := commit(t.Context(), conn, cut); err == nil {
					t.Error("the commit was not cut")
				}
				if l.route.Cuts() != 1 {
					t.Errorf("%d commits were cut", l.route.Cuts())
				}
				if delivered {
					pgtest.Until(t, "it is committed", func() bool { return l.has(cut) })
				}
				pgtest.Must(t, commit(t.Context(), l.connect(), after))
				if !l.has(before) || !l.has(after) || l.has(cut) != delivered {
					t.Errorf("before %t, after %t, cut %t", l.has(before), l.has(after), l.has(cut))
				}
			})
		}
	}
}

// A COMMIT whose answer is swallowed takes effect, and its caller receives
// nothing until the cut ends.
func TestSwallowsAnswers(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	conn := l.connect()
	end := l.route.Cut(stage.Swallowed, 1)
	done := make(chan error, 1)
	go func() { done <- commits["a transaction"](t.Context(), conn, "swallowed") }()
	pgtest.Until(t, "it is committed", func() bool { return l.has("swallowed") })
	select {
	case err := <-done:
		t.Errorf("the caller received an answer: %v", err)
	default:
	}
	end()
	if err := <-done; err == nil {
		t.Error("the answer was delivered")
	}
}

// A transaction is not cut if it only reads, or if no answer depends on what it
// writes.
func TestCutsWhatMattersOnly(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.exec(`CREATE TABLE aside (probe text)`)
	conn := l.connect()
	defer l.route.Cut(stage.Before, 1)()
	for _, sql := range []string{`SELECT 1 FROM reservations`, `INSERT INTO aside VALUES ('x')`, `UPDATE aside SET probe = 'y'`} {
		_, err := conn.Exec(t.Context(), sql)
		pgtest.Must(t, err)
	}
	pgtest.Must(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `SELECT count(*) FROM reservations WHERE tenant_id = $1`, "00000000-0000-0000-0000-000000000000")
		return err
	}))
}

// While a route is silent nothing arrives, on old or new connections.
// Afterwards everything arrives.
func TestSilenceIsOver(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	conn := l.connect()
	end := l.route.Silence()
	done := make(chan error, 2)
	go func() { done <- commits["a statement"](t.Context(), conn, "old") }()
	go func() {
		again, err := pgx.ConnectConfig(t.Context(), l.via)
		if err == nil {
			err = again.Close(context.Background())
		}
		done <- err
	}()
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case err := <-done:
		t.Errorf("something arrived: %v", err)
	case <-timer.C:
	}
	if l.has("old") {
		t.Error("a statement arrived")
	}
	end()
	pgtest.Must(t, <-done)
	pgtest.Must(t, <-done)
	if !l.has("old") {
		t.Error("the statement did not arrive")
	}
}

func TestResetEndsConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	conn := l.connect()
	pgtest.Must(t, conn.Ping(t.Context()))
	l.route.Reset()
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("the connection was not ended")
	}
	pgtest.Must(t, l.connect().Ping(t.Context()))
}
