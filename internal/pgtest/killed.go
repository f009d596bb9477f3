package pgtest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The variables of a process that RunKilled starts.
const (
	killedURL  = "PGTEST_KILLED_URL"
	killedStep = "PGTEST_KILLED_STEP"
)

const victimsSQL = `SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()`

// RunKilled runs the test of that name in a process of its own, which is killed (kill -9) ahead of the nth step that
// it makes on the pool of NewKilled. It reports whether it was killed, and fails the caller's test if the other one
// fails. env are further variables of the process, NAME=value. When it returns, the process has no session left.
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

// awaitNoVictim returns once no victim has a session.
func awaitNoVictim(t testing.TB, db *pgxpool.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for left := 1; left > 0; <-tick.C {
		if err := db.QueryRow(ctx, victimsSQL, victimName).Scan(&left); err != nil {
			t.Fatalf("wait for the end of the victim's session: %v", err)
		}
	}
}

// NewKilled is the victim of a process that RunKilled started; nil in any other one.
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
