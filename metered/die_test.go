package metered_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
)

// leastSteps is how many steps a command has at least: BEGIN, the key, the locks, the writes, the job, the event, COMMIT,
// and the moment after.
const leastSteps = 8

// A command whose session the server ends between any two of its steps leaves all or nothing.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	for last := 1; ; last++ {
		step, ended := 0, false
		victim := pgtest.NewVictim(t, b.db.Config(), func(conn *pgx.Conn) {
			if step++; step == last {
				ended = true
				b.exec(`SELECT pg_terminate_backend($1, 60000)`, conn.PgConn().PID())
			}
		})
		_, err := b.on(victim).commands.Run(t.Context(), b.command(token))
		want := rows{}
		if err == nil {
			want = everything
		}
		if got := b.rows(); got != want {
			t.Fatalf("ended ahead of step %d (%v): %+v", last, err, got)
		}
		if err == nil {
			if last < leastSteps || !ended {
				t.Errorf("it went through with its session ended at step %d", last)
			}
			return
		}
	}
}

const (
	dieURL   = "METERED_TEST_URL"
	dieStep  = "METERED_TEST_STEP"
	dieToken = "METERED_TEST_TOKEN"
)

// TestCommandProcess is the process that TestProcessIsKilled kills; by itself it does nothing.
func TestCommandProcess(t *testing.T) { //nolint:paralleltest // a program of its own
	last, err := strconv.Atoi(os.Getenv(dieStep))
	if err != nil {
		return
	}
	config, err := pgxpool.ParseConfig(os.Getenv(dieURL))
	if err != nil {
		t.Fatal(err)
	}
	step := 0
	b := bundleOn(t, pgtest.NewVictim(t, config, func(*pgx.Conn) {
		if step++; step == last {
			self, _ := os.FindProcess(os.Getpid())
			_ = self.Kill()
			select {}
		}
	}))
	if _, err := b.commands.Run(t.Context(), b.command(metered.ParseToken(os.Getenv(dieToken)))); err != nil {
		t.Fatal(err)
	}
}

// A process killed with kill -9 between any two steps of its command leaves all or nothing.
func TestProcessIsKilled(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	for last := 1; ; last++ {
		program := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCommandProcess$", "-test.timeout=30s")
		program.Env = append(os.Environ(), dieURL+"="+b.db.Config().ConnString(), dieStep+"="+strconv.Itoa(last), dieToken+"="+token.Plaintext())
		out, err := program.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != -1) {
			t.Fatalf("it failed by itself at step %d: %v\n%s", last, err, out)
		}
		b.awaitGone()
		got := b.rows()
		if got != (rows{}) && got != everything {
			t.Fatalf("killed ahead of step %d: %+v", last, got)
		}
		if got == everything {
			if last < leastSteps || err == nil {
				t.Errorf("it went through, killed at step %d: %v", last, err)
			}
			return
		}
	}
}

// awaitGone returns once no victim has a session.
func (b *bundle) awaitGone() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for n := 1; n > 0; {
		err := b.db.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`, pgtest.Victim).Scan(&n)
		if err != nil {
			b.t.Fatalf("wait for the victim's session to end: %v", err)
		}
	}
}
