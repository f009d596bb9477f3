package stage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/chaos/stage"
)

// Parts of one line, and the lines of one entry, are joined.
func TestReadsEntries(t *testing.T) {
	t.Parallel()
	var l stage.PostgresLog
	for _, piece := range []string{
		"2026-11-22 04:32:00.123 UTC [42] 23514 [holdfast-api] ERROR:  new row violates check constraint \"a\"\n2026-11-22 04:32:00.1",
		"23 UTC [42] 23514 [holdfast-api] DETAIL:  Failing row contains (1).\n",
		"2026-11-22 04:32:00.123 UTC [43] 00000 [] LOG:  checkpoint starting: time\n",
		"2026-11-22 04:32:00.124 UTC [42] 23514 [holdfast-api] STATEMENT:  UPDATE\n\tinventory_stocks\n",
	} {
		if _, err := l.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	want := []*stage.Entry{{
		At: time.Date(2026, 11, 22, 4, 32, 0, 123e6, time.UTC), PID: "42", SQLState: "23514", Program: "holdfast-api", Severity: "ERROR",
		Text: `new row violates check constraint "a"`, More: []string{"DETAIL: Failing row contains (1).", "STATEMENT: UPDATE inventory_stocks"},
	}}
	if diff := cmp.Diff(want, l.Errors()); diff != "" || l.Lines() != 5 {
		t.Errorf("%d lines (-want +got):\n%s", l.Lines(), diff)
	}
}

// A deadlock of two calls of the API about a stock is explained, another is not.
func TestExplainsDeadlock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		program, context string
		explained        bool
	}{
		{"holdfast-api", `CONTEXT: while locking tuple (0,62) in relation "inventory_stocks"`, true},
		{"holdfast-worker", `CONTEXT: while locking tuple (0,62) in relation "inventory_stocks"`, false},
		{"holdfast-api", `CONTEXT: while locking tuple (0,62) in relation "reservations"`, false},
	} {
		e := &stage.Entry{At: time.Now(), SQLState: "40P01", Program: c.program, Severity: "ERROR", Text: "deadlock detected", More: []string{c.context}}
		if got := len(stage.Unexplained([]*stage.Entry{e}, new(stage.Timeline), 1)) == 0; got != c.explained {
			t.Errorf("%s, %s: explained: %t, want %t", c.program, c.context, got, c.explained)
		}
	}
}

// An error is explained by the faults that cause it, while they last and
// shortly after, and by no others.
func TestExplains(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		state, text string
		kind        stage.Kind
		late        time.Duration
		explained   bool
	}{
		{"57P01", "terminating connection due to administrator command", stage.RestartFast, 0, true},
		{"57P01", "terminating connection due to administrator command", stage.EndSessions, time.Second, true},
		{"57P01", "terminating connection due to administrator command", stage.EndSessions, time.Minute, false},
		{"57P01", "terminating connection due to administrator command", stage.Freeze, 0, false},
		{"57P03", "the database system is starting up", stage.RestartCrash, time.Second, true},
		{"57P03", "the database system is starting up", stage.Kill, time.Second, false},
		{"57014", "canceling statement due to user request", stage.Silence, time.Second, true},
		{"57014", "canceling statement due to statement timeout", stage.Silence, time.Second, false},
		{"25P03", "terminating connection due to idle-in-transaction timeout", stage.Freeze, 0, true},
		{"25P03", "terminating connection due to idle-in-transaction timeout", stage.Reset, 0, false},
		{"55P03", "canceling statement due to lock timeout", stage.LockStock, 0, true},
		{"55P03", "canceling statement due to lock timeout", stage.Sweeps, 0, false},
		{"40P01", "deadlock detected", stage.Freeze, 0, false},
		{"23514", "new row violates check constraint", stage.RestartCrash, 0, false},
		{"23505", "duplicate key value violates unique constraint", stage.CutUnheard, 0, false},
		{"23505", `duplicate key value violates unique constraint "reservation_requests_pkey"`, stage.Silence, time.Second, true},
		{"23505", `duplicate key value violates unique constraint "reservation_requests_pkey"`, stage.CutMidway, time.Second, true},
		{"23505", `duplicate key value violates unique constraint "reservation_requests_pkey"`, stage.CutUnheard, 0, false},
		{"23505", `duplicate key value violates unique constraint "reservations_pkey"`, stage.Silence, 0, false},
		{"22012", "division by zero", stage.CutUnheard, 0, false},
		{"42601", "syntax error", stage.Silence, 0, false},
		{"53300", "sorry, too many clients already", stage.Reset, 0, false},
		{"57014", "canceling autovacuum task", stage.Sweeps, 0, true},
	} {
		t.Run(fmt.Sprint(c.state, " ", c.kind, " ", c.late), func(t *testing.T) {
			t.Parallel()
			var line stage.Timeline
			line.Begin(stage.Fault{Kind: c.kind})()
			e := &stage.Entry{At: time.Now().Add(c.late), SQLState: c.state, Severity: "ERROR", Text: c.text}
			if got := len(stage.Unexplained([]*stage.Entry{e}, &line, 1)) == 0; got != c.explained {
				t.Errorf("explained: %t, want %t", got, c.explained)
			}
		})
	}
}
