package metered_test

import (
	"os"
	"testing"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
)

// leastSteps is the minimum number of steps of a command: BEGIN, the key, the
// locks, the writes, the job, the event, COMMIT, and the moment after it.
const leastSteps = 8

// A command whose session the server ends between any two of its steps takes
// effect completely or not at all.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	for last := 1; ; last++ {
		victim, ended := pgtest.NewEnded(t, b.db, last)
		_, err := b.on(victim).commands.Run(t.Context(), b.command(token))
		want := rows{}
		if err == nil {
			want = everything
		}
		if got := b.rows(); got != want {
			t.Fatalf("ended ahead of step %d (%v): %+v", last, err, got)
		}
		if err == nil {
			if last < leastSteps || !ended.Load() {
				t.Errorf("it succeeded although its session ended at step %d", last)
			}
			return
		}
	}
}

const dieToken = "METERED_TEST_TOKEN"

// TestCommandProcess is the process that TestProcessIsKilled kills. It does
// nothing if run alone.
func TestCommandProcess(t *testing.T) { //nolint:paralleltest // runs in a separate process
	db := pgtest.NewKilled(t)
	if db == nil {
		return
	}
	b := bundleOn(t, db)
	if _, err := b.commands.Run(t.Context(), b.command(metered.ParseToken(os.Getenv(dieToken)))); err != nil {
		t.Fatal(err)
	}
}

// A command whose process is killed with kill -9 between any two steps takes
// effect completely or not at all.
func TestProcessIsKilled(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	token := b.mint()
	for last := 1; ; last++ {
		killed := pgtest.RunKilled(t, b.db, "TestCommandProcess", last, dieToken+"="+token.Plaintext())
		got := b.rows()
		if got != (rows{}) && got != everything {
			t.Fatalf("killed ahead of step %d: %+v", last, got)
		}
		if got == everything {
			if last < leastSteps || !killed {
				t.Errorf("it succeeded at step %d; killed: %t", last, killed)
			}
			return
		}
	}
}
