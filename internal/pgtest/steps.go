package pgtest

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// victimName is the application_name of the sessions of victims.
const victimName = "victim"

// newVictim returns a pool of one connection to the database of config, for a
// test that ends its session or its process between two steps. next is called
// before each message to the server, and after each COMMIT.
func newVictim(t testing.TB, config *pgxpool.Config, next func(conn *pgx.Conn)) *pgxpool.Pool {
	t.Helper()
	config.ConnConfig.RuntimeParams["application_name"] = victimName
	config.ConnConfig.Tracer = steps(next)
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// NewEnded returns a pool whose session the server ends before the nth step;
// ended reports whether it has. db is a pool of the same database.
func NewEnded(t testing.TB, db *pgxpool.Pool, n int) (victim *pgxpool.Pool, ended *atomic.Bool) {
	t.Helper()
	ended = &atomic.Bool{}
	return newVictim(t, db.Config(), atStep(n, func(conn *pgx.Conn) {
		ended.Store(true)
		if _, err := db.Exec(t.Context(), `SELECT pg_terminate_backend($1, 60000)`, conn.PgConn().PID()); err != nil {
			t.Errorf("end the victim's session: %v", err)
		}
	})), ended
}

// atStep calls do before the nth step.
func atStep(n int, do func(conn *pgx.Conn)) func(conn *pgx.Conn) {
	step := 0
	return func(conn *pgx.Conn) {
		if step++; step == n {
			do(conn)
		}
	}
}

type sentKey struct{}

// steps is a tracer that calls a function before each message to the server,
// and after each COMMIT.
type steps func(conn *pgx.Conn)

func (next steps) TraceQueryStart(ctx context.Context, conn *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	next(conn)
	return context.WithValue(ctx, sentKey{}, query.SQL)
}

func (next steps) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, _ := ctx.Value(sentKey{}).(string); strings.EqualFold(sql, "commit") {
		next(conn)
	}
}

func (next steps) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	next(conn)
	return ctx
}

func (steps) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (steps) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
