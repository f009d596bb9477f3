package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

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
