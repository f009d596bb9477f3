package stage

import (
	"slices"
	"strings"
	"time"
)

// explanation is a kind of error that some faults cause.
type explanation struct {
	state string // SQLSTATE
	text  string // a part of the message; empty: any message
	// by are the faults; none: any fault except those that harm nothing
	by []Kind
	// after is the longest time between the fault's end and the error.
	after time.Duration
}

// stalls are the faults during which a transaction with locks makes no progress
// for a while.
var stalls = []Kind{Freeze, Silence, Swallow, LockStock, LockRows, Slow}

// losses are the faults after which a client of Postgres has ended, or has
// closed its connection.
var losses = []Kind{
	Kill, Stop, Freeze, CutBefore, CutMidway, CutUnheard, Swallow, Reset, Silence,
	RestartFast, RestartCrash, KillBackend, EndSessions,
}

var outages = []Kind{RestartFast, RestartCrash, KillBackend}

// explanations follow appendix A of the PostgreSQL manual.
var explanations = []explanation{
	// admin_shutdown: a session or a background worker of the server is ended.
	{"57P01", "", []Kind{RestartFast, EndSessions}, 5 * time.Second},
	// crash_shutdown: all sessions are ended, because one crashed or the server
	// stops at once.
	{"57P02", "", []Kind{RestartCrash, KillBackend}, 5 * time.Second},
	// cannot_connect_now: the server starts, recovers or stops.
	{"57P03", "", outages, 10 * time.Second},
	// query_canceled: the caller stopped waiting for the answer, or lost the
	// connection.
	{"57014", "canceling statement due to user request", slices.Concat(losses, stalls), 15 * time.Second},
	// A session that is ended before it has logged in has the same code.
	{"57014", "canceling authentication due to timeout", []Kind{RestartFast, EndSessions}, 5 * time.Second},
	// idle_in_transaction_session_timeout: the client stalled between two
	// statements.
	{"25P03", "", stalls, 15 * time.Second},
	// lock_not_available: the client of a transaction with a lock stalls, or
	// has ended before Postgres has noticed.
	{"55P03", "canceling statement due to lock timeout", slices.Concat(stalls, losses), 15 * time.Second},
	// A migration timed out waiting for a lock. An admission that times out
	// answers 503, which an upgrade counts.
	{"55P03", "canceling statement due to lock timeout", []Kind{Migrate}, time.Second},
	// unique_violation: an API inserts new requests without ON CONFLICT. Without an
	// answer it inserts them again, with ON CONFLICT. The first insert may arrive
	// last, or run still when the connection that delivered it is broken.
	{"23505", `"reservation_requests_pkey"`, []Kind{Silence, Slow, CutMidway}, 15 * time.Second},
	// The fence of a tenant that has left, or is about to leave, this cell.
	{"HF001", "", []Kind{Move}, 20 * time.Second},
	// A fence is made with a lock that waits 50 ms for writers, and is tried again.
	{"55P03", "canceling statement due to lock timeout", []Kind{Move}, time.Second},
	// connection_failure and protocol_violation: the connection broke in the
	// middle.
	{"08006", "", slices.Concat(losses, stalls), 15 * time.Second},
	{"08P01", "unexpected EOF", losses, 15 * time.Second},
	{"08003", "", losses, 15 * time.Second},
}

// benign are errors that no program causes.
var benign = []string{
	"canceling autovacuum task", // another session waited for a lock that autovacuum had
}

// Unexplained returns the errors that no fault of the timeline explains. On a
// busy machine the effect of a fault may come later: slowdown multiplies the
// time after a fault during which it explains errors.
func Unexplained(errors []*Entry, line *Timeline, slowdown int) (rest []*Entry) {
	for _, e := range errors {
		if !explained(e, line, slowdown) {
			rest = append(rest, e)
		}
	}
	return rest
}

func explained(e *Entry, line *Timeline, slowdown int) bool {
	if slices.ContainsFunc(benign, func(text string) bool { return strings.Contains(e.Text, text) }) {
		return true
	}
	mentions := func(text string) bool {
		return slices.ContainsFunc(e.More, func(line string) bool { return strings.Contains(line, text) })
	}
	switch {
	case (e.SQLState == "55P03" || e.SQLState == "40P01") && mentions("parent AS MATERIALIZED"):
		return true // two drains decide parts of one request, and the second one tries its batch again
	case e.SQLState == "40P01" && e.Program == "holdfast-api" && mentions("inventory_stocks"):
		// A call that runs alone claims its idempotency key and then waits for the
		// stock. If the same call came to another process too, a group there has the
		// stock and waits 10 ms for the key. On a busy machine Postgres finds the two
		// meanwhile. Both are tried again.
		return true
	case e.SQLState != "55P03":
	case mentions("inventory_stocks"):
		return true // a direct decision or a group of verbs continues without a stock whose lock it did not get within 100 ms
	}
	// The server reads the clock before it writes the line, and writes
	// milliseconds.
	at := e.At.Add(50 * time.Millisecond)
	return slices.ContainsFunc(explanations, func(x explanation) bool {
		return x.state == e.SQLState && strings.Contains(e.Text, x.text) &&
			line.Any(at, time.Duration(slowdown)*x.after, func(w Window) bool { return slices.Contains(x.by, w.Kind) })
	})
}

// CountErrors returns the number of errors of each sort. A sort is the SQLSTATE and
// the message without its numbers and names.
func CountErrors(errors []*Entry) map[string]int {
	counts := map[string]int{}
	for _, e := range errors {
		counts[e.SQLState+" "+e.Severity+": "+cut(e.Text, 100)]++
	}
	return counts
}
