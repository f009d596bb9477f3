package pg_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/sleep"
)

// The errors of the driver, caused by a real server, have the class that the
// table gives to errors of their kind.
func TestDriverErrors(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, c := range map[string]struct {
		make func(t *testing.T) error
		want meaning
	}{
		"session ended by an administrator": {func(t *testing.T) error { return killed(t, db) }, outage},
		"statement timeout":                 {func(t *testing.T) error { return timedOut(t, db) }, outage},
		"context cancelled while running":   {func(t *testing.T) error { return cancelled(t, db) }, none},
		"connection refused":                {refused, outage},
		"closed connection":                 {func(t *testing.T) error { return closed(t, db) }, outage},
		"answer to a commit lost":           {func(t *testing.T) error { return commitLost(t, db) }, outage},
		"closed pool":                       {func(t *testing.T) error { return closedPool(t, db) }, outage},
		"argument of the wrong type":        {func(t *testing.T) error { return wrongType(t, db) }, data},
		"NUL in text":                       {func(t *testing.T) error { return nul(t, db) }, data},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.make(t)
			if err == nil {
				t.Fatal("no error")
			}
			if got := (meaning{pg.IsData(err), pg.IsRetryable(err), pg.IsOutage(err)}); got != c.want {
				t.Errorf("%v (%T): got %+v, want %+v", err, err, got, c.want)
			}
		})
	}
}

func killed(t *testing.T, db *pgxpool.Pool) error {
	_, err := db.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())")
	return err
}

func timedOut(t *testing.T, db *pgxpool.Pool) error {
	return pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL statement_timeout = '1ms'"); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), "SELECT pg_sleep(60)")
		return err
	})
}

func cancelled(t *testing.T, db *pgxpool.Pool) error {
	ctx, cancel := context.WithCancel(t.Context())
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		var pid int
		if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			return err
		}
		go func() {
			defer cancel()
			for asleep := false; !asleep && sleep.For(t.Context(), time.Millisecond) == nil; {
				_ = db.QueryRow(t.Context(), "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $1", pid).Scan(&asleep)
			}
		}()
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		return err
	})
}

func refused(t *testing.T) error {
	_, err := pgx.Connect(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	return err
}

func closed(t *testing.T, db *pgxpool.Pool) error {
	conn, err := pgx.ConnectConfig(t.Context(), db.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), "SELECT 1")
	return err
}

// commitLost sends a COMMIT and loses the answer.
func commitLost(t *testing.T, db *pgxpool.Pool) error {
	config := db.Config().ConnConfig
	var deaf atomic.Bool // pgx dials a second connection, to cancel, while this test reads the value
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &deafOnCommit{Conn: conn, deaf: &deaf}, err
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	err = pgx.BeginFunc(t.Context(), conn, func(pgx.Tx) error { return nil })
	if !deaf.Load() {
		t.Fatal("no commit was sent")
	}
	return err
}

// deafOnCommit is a connection that receives nothing once it has sent a COMMIT.
type deafOnCommit struct {
	net.Conn
	deaf *atomic.Bool
}

func (c *deafOnCommit) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(p, []byte("commit")) {
		c.deaf.Store(true)
		return n, c.Close()
	}
	return n, err
}

func closedPool(t *testing.T, db *pgxpool.Pool) error {
	other, err := pgxpool.NewWithConfig(t.Context(), db.Config())
	if err != nil {
		t.Fatal(err)
	}
	other.Close()
	_, err = other.Exec(t.Context(), "SELECT 1")
	return err
}

func wrongType(t *testing.T, db *pgxpool.Pool) error {
	_, err := db.Exec(t.Context(), "SELECT $1::integer", "twelve")
	return err
}

func nul(t *testing.T, db *pgxpool.Pool) error {
	_, err := db.Exec(t.Context(), "SELECT $1::text", "a\x00b")
	return err
}
