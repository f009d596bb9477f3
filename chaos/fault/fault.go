package fault

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is what is done.
type Kind string

// The kinds of fault.
const (
	// Kill ends a program by SIGKILL, and starts it again after For.
	Kill Kind = "kill"
	// Stop ends a program by SIGTERM, waits for its end, and starts it again after For.
	Stop Kind = "stop"
	// Freeze stops a program by SIGSTOP, and lets it go on after For.
	Freeze Kind = "freeze"
	// CutBefore breaks the connection before a COMMIT reaches Postgres.
	CutBefore Kind = "cut-before"
	// CutMidway delivers a COMMIT and breaks the connection at once.
	CutMidway Kind = "cut-midway"
	// CutUnheard delivers a COMMIT, waits for the answer, and breaks the connection in its place.
	CutUnheard Kind = "cut-unheard"
	// Swallow delivers a COMMIT and no answer: the connection stays open and silent until the fault ends.
	Swallow Kind = "swallow"
	// Reset breaks every connection of a program to Postgres.
	Reset Kind = "reset"
	// Silence delivers nothing in either direction for For; then what was held back arrives.
	Silence Kind = "silence"
	// Slow delays what passes in either direction.
	Slow Kind = "slow"
	// RestartFast stops Postgres by SIGINT, and starts it again after For.
	RestartFast Kind = "restart-fast"
	// RestartCrash stops Postgres by SIGQUIT, so that it recovers from its log when it starts again after For.
	RestartCrash Kind = "restart-crash"
	// KillBackend ends one session's server process by SIGKILL: Postgres ends all sessions and recovers.
	KillBackend Kind = "kill-backend"
	// EndSessions ends every session of the programs by pg_terminate_backend.
	EndSessions Kind = "end-sessions"
	// LockStock keeps a variant's row locked for For.
	LockStock Kind = "lock-stock"
	// Sweeps starts three sweeps at once. It is no fault: what it does must go well.
	Sweeps Kind = "sweeps"
	// Migrate brings the schema up to date, while another transaction that has read the requests lasts for For. It is no
	// fault either.
	Migrate Kind = "migrate"
)

// Targets that are not the name of a program.
const (
	// All is every program's connection to Postgres.
	All = "all"
	// Postgres is the server, or something within it.
	Postgres = "postgres"
)

// Fault is one fault of a plan.
type Fault struct {
	// At is when it begins, from the storm's beginning.
	At   time.Duration
	Kind Kind
	// Target is a program's name, All or Postgres.
	Target string
	// For is how long it lasts; for a kind that starts something again, how long that stays down.
	For time.Duration
	// Count is how many COMMITs are cut, at most.
	Count int
}

// String is the fault on one line.
func (f Fault) String() string {
	s := fmt.Sprintf("%6.2fs %s %s for %s", f.At.Seconds(), f.Kind, f.Target, f.For.Round(time.Millisecond))
	if f.Count > 0 {
		s += fmt.Sprintf(", %d commits", f.Count)
	}
	return s
}

// wires are the kinds that a program's connection to Postgres suffers.
var wires = []Kind{CutBefore, CutMidway, CutUnheard, Swallow, Reset, Silence, Slow}

// OnWire reports whether the kind breaks connections and leaves the programs and Postgres alone.
func (k Kind) OnWire() bool { return slices.Contains(wires, k) }

// servers are the kinds that Postgres suffers as a whole.
var servers = []Kind{RestartFast, RestartCrash, KillBackend, EndSessions}

// OnServer reports whether every session of Postgres suffers from the kind.
func (k Kind) OnServer() bool { return slices.Contains(servers, k) }

// Hits reports whether the fault can be felt by calls to the program.
func (f Fault) Hits(program string) bool {
	return f.Kind != Sweeps && f.Kind != LockStock && f.Kind != Migrate && (f.Target == program || f.Target == All || f.Kind.OnServer())
}

// Count is how many faults of each kind there are, most first, on one line.
func Count(faults []Fault) string {
	counts := map[Kind]int{}
	var kinds []Kind
	for _, f := range faults {
		if counts[f.Kind]++; counts[f.Kind] == 1 {
			kinds = append(kinds, f.Kind)
		}
	}
	slices.SortStableFunc(kinds, func(a, b Kind) int { return counts[b] - counts[a] })
	var parts []string
	for _, k := range kinds {
		parts = append(parts, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return strings.Join(parts, ", ")
}
