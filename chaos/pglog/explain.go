package pglog

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast/holdfast/chaos/fault"
)

// explanation is an error that some faults cause.
type explanation struct {
	state string // SQLSTATE
	text  string // a part of the message; empty: any
	// by are the faults; none: any but the ones that harm nothing.
	by []fault.Kind
	// after is how long after the fault's end the error may still come.
	after time.Duration
}

// stalls are the faults that leave an owner of locks without a word for a while.
var stalls = []fault.Kind{fault.Freeze, fault.Silence, fault.Swallow, fault.LockStock, fault.Slow}

// losses are the faults after which a caller of Postgres is gone, or believes that Postgres is.
var losses = []fault.Kind{
	fault.Kill, fault.Stop, fault.Freeze, fault.CutBefore, fault.CutMidway, fault.CutUnheard, fault.Swallow, fault.Reset, fault.Silence,
	fault.RestartFast, fault.RestartCrash, fault.KillBackend, fault.EndSessions,
}

var outages = []fault.Kind{fault.RestartFast, fault.RestartCrash, fault.KillBackend}

// explanations follow appendix A of the PostgreSQL manual.
var explanations = []explanation{
	// admin_shutdown: a session, or a worker of the server itself, is ended.
	{"57P01", "", []fault.Kind{fault.RestartFast, fault.EndSessions}, 5 * time.Second},
	// crash_shutdown: all sessions are ended, because one crashed or the server stops at once.
	{"57P02", "", []fault.Kind{fault.RestartCrash, fault.KillBackend}, 5 * time.Second},
	// cannot_connect_now: the server starts, recovers or stops.
	{"57P03", "", outages, 10 * time.Second},
	// query_canceled: the caller stopped waiting for the answer, or lost the connection.
	{"57014", "canceling statement due to user request", slices.Concat(losses, stalls), 15 * time.Second},
	// The same code has a session that is ended before it has logged in.
	{"57014", "canceling authentication due to timeout", []fault.Kind{fault.RestartFast, fault.EndSessions}, 5 * time.Second},
	// idle_in_transaction_session_timeout: the owner stalled between two statements.
	{"25P03", "", stalls, 15 * time.Second},
	// lock_not_available: the owner of a lock stalls, or is gone and Postgres does not know it yet.
	{"55P03", "canceling statement due to lock timeout", slices.Concat(stalls, losses), 15 * time.Second},
	// A migration that gives way. An admission that does is a call answered 503, which an upgrade counts.
	{"55P03", "canceling statement due to lock timeout", []fault.Kind{fault.Migrate}, time.Second},
	// connection_failure and protocol_violation: the connection broke in the middle.
	{"08006", "", slices.Concat(losses, stalls), 15 * time.Second},
	{"08P01", "unexpected EOF", losses, 15 * time.Second},
	{"08003", "", losses, 15 * time.Second},
}

// benign are errors that Postgres makes without any program's doing.
var benign = []string{
	"canceling autovacuum task", // another session waited for a lock that autovacuum had
}

// Unexplained are the errors that no fault of the timeline explains. On a busy machine what a fault causes may come later:
// patience multiplies how much.
func Unexplained(errors []*Entry, line *fault.Timeline, patience int) (rest []*Entry) {
	for _, e := range errors {
		if !explained(e, line, patience) {
			rest = append(rest, e)
		}
	}
	return rest
}

func explained(e *Entry, line *fault.Timeline, patience int) bool {
	if slices.ContainsFunc(benign, func(text string) bool { return strings.Contains(e.Text, text) }) {
		return true
	}
	if e.SQLState == "55P03" && slices.ContainsFunc(e.More, func(line string) bool { return strings.Contains(line, "inventory_stocks") }) {
		return true // a direct decision or a group of verbs goes on without a stock that is busy for 100 ms
	}
	// The server's clock is read before the line is written, and in milliseconds.
	at := e.At.Add(50 * time.Millisecond)
	return slices.ContainsFunc(explanations, func(x explanation) bool {
		return x.state == e.SQLState && strings.Contains(e.Text, x.text) &&
			line.Any(at, time.Duration(patience)*x.after, func(w fault.Window) bool { return slices.Contains(x.by, w.Kind) })
	})
}

// Counts are how many errors there are of each sort: the SQLSTATE and the message without its numbers and names.
func Counts(errors []*Entry) map[string]int {
	counts := map[string]int{}
	for _, e := range errors {
		counts[e.SQLState+" "+e.Severity+": "+cut(e.Text, 100)]++
	}
	return counts
}
