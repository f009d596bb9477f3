package pgtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
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
// and after each COMMIT, alone or at the end of a batch.
type steps func(conn *pgx.Conn)

func (next steps) TraceQueryStart(ctx context.Context, conn *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	next(conn)
	return context.WithValue(ctx, sentKey{}, query.SQL)
}

func (next steps) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	next.ended(ctx, conn)
}

func (next steps) ended(ctx context.Context, conn *pgx.Conn) {
	if sql, _ := ctx.Value(sentKey{}).(string); strings.EqualFold(sql, "commit") {
		next(conn)
	}
}

func (next steps) TraceBatchStart(ctx context.Context, conn *pgx.Conn, batch pgx.TraceBatchStartData) context.Context {
	next(conn)
	last := batch.Batch.QueuedQueries[batch.Batch.Len()-1]
	return context.WithValue(ctx, sentKey{}, last.SQL)
}

func (steps) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (next steps) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	next.ended(ctx, conn)
}

// The environment variables of a process that RunKilled starts.
const (
	killedURL  = "PGTEST_KILLED_URL"
	killedStep = "PGTEST_KILLED_STEP"
)

const victimsSQL = `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`

// RunKilled runs the named test in another process, which kills itself (kill
// -9) before its nth step on the pool of NewKilled. It reports whether the
// process was killed, and fails the caller's test if the other test fails. env
// are more variables of the process, as NAME=value. When RunKilled returns, the
// process has no session left.
func RunKilled(t testing.TB, db *pgxpool.Pool, test string, n int, env ...string) (killed bool) {
	t.Helper()
	program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=30s")
	program.Env = append(os.Environ(), killedURL+"="+db.Config().ConnString(), killedStep+"="+strconv.Itoa(n))
	program.Env = append(program.Env, env...)
	out, err := program.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1) {
		t.Fatalf("it was not killed at step %d, but failed: %v\n%s", n, err, out)
	}
	awaitNoVictim(t, db)
	return err != nil
}

// awaitNoVictim waits until no victim has a session.
func awaitNoVictim(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	Until(t, "the victim's sessions have ended", func() bool { return Int(t, db, victimsSQL, victimName) == 0 })
}

// NewKilled returns the pool of a process that RunKilled started, and nil in
// any other process.
func NewKilled(t testing.TB) *pgxpool.Pool {
	t.Helper()
	step, err := strconv.Atoi(os.Getenv(killedStep))
	if err != nil {
		return nil
	}
	config, err := pgxpool.ParseConfig(os.Getenv(killedURL))
	if err != nil {
		t.Fatal(err)
	}
	return newVictim(t, config, atStep(step, func(*pgx.Conn) {
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	}))
}
