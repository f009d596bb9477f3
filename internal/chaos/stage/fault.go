package stage

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of fault.
type Kind string

// The kinds of fault.
const (
	// Kill ends a program by SIGKILL, and starts it again after For.
	Kill Kind = "kill"
	// Stop ends a program by SIGTERM, waits for its end, and starts it again
	// after For.
	Stop Kind = "stop"
	// Freeze stops a program by SIGSTOP, and continues it after For.
	Freeze Kind = "freeze"
	// CutBefore breaks the connection before a COMMIT reaches Postgres.
	CutBefore Kind = "cut-before"
	// CutMidway delivers a COMMIT and breaks the connection at once.
	CutMidway Kind = "cut-midway"
	// CutUnheard delivers a COMMIT, waits for the answer, and breaks the
	// connection instead of delivering it.
	CutUnheard Kind = "cut-unheard"
	// Swallow delivers a COMMIT and no answer: the connection stays open and
	// silent until the fault ends.
	Swallow Kind = "swallow"
	// Reset breaks every connection of a program to Postgres.
	Reset Kind = "reset"
	// Silence delivers nothing in either direction for For. Then everything
	// that was sent arrives.
	Silence Kind = "silence"
	// Slow delays everything in both directions.
	Slow Kind = "slow"
	// RestartFast stops Postgres by SIGINT, and starts it again after For.
	RestartFast Kind = "restart-fast"
	// RestartCrash stops Postgres by SIGQUIT, so that it recovers from its log
	// when it starts again after For.
	RestartCrash Kind = "restart-crash"
	// KillBackend ends one session's server process by SIGKILL: Postgres ends
	// all sessions and recovers.
	KillBackend Kind = "kill-backend"
	// EndSessions ends every session of the programs by pg_terminate_backend.
	EndSessions Kind = "end-sessions"
	// LockStock keeps a variant's row locked for For.
	LockStock Kind = "lock-stock"
	// LockRows keeps random stocks and holds locked for For.
	LockRows Kind = "lock-rows"
	// Sweeps starts three sweeps at once. It is not a fault: the sweeps must
	// succeed.
	Sweeps Kind = "sweeps"
	// Migrate runs the migrations while another transaction that has read the
	// requests lasts for For. It is not a fault either.
	Migrate Kind = "migrate"
	// Move moves a tenant to another cell. It is not a fault either, but its
	// program is killed some times.
	Move Kind = "move"
)

// Targets that are not the name of a program.
const (
	// All is the connections of all programs to Postgres.
	All = "all"
	// Server is Postgres, or a session or row in it.
	Server = "postgres"
)

// Fault is one fault of a plan.
type Fault struct {
	// At is when it begins, from the storm's beginning.
	At   time.Duration
	Kind Kind
	// Target is a program's name, All or Server.
	Target string
	// For is how long it lasts. For a kind that starts its target again, it is
	// how long the target stays down.
	For time.Duration
	// Count is the largest number of COMMITs that are cut.
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

// wires are the kinds that affect a program's connection to Postgres.
var wires = []Kind{CutBefore, CutMidway, CutUnheard, Swallow, Reset, Silence, Slow}

// OnWire reports whether the kind affects only connections, not the programs or
// Postgres.
func (k Kind) OnWire() bool { return slices.Contains(wires, k) }

// servers are the kinds that affect the whole Postgres server.
var servers = []Kind{RestartFast, RestartCrash, KillBackend, EndSessions}

// OnRows reports whether the kind only keeps rows locked.
func (k Kind) OnRows() bool { return k == LockStock || k == LockRows }

// OnServer reports whether the kind affects every session of Postgres.
func (k Kind) OnServer() bool { return slices.Contains(servers, k) }

// Hits reports whether the fault can affect calls to the program.
func (f Fault) Hits(program string) bool {
	return f.Kind != Sweeps && !f.Kind.OnRows() && f.Kind != Migrate && f.Kind != Move && (f.Target == program || f.Target == All || f.Kind.OnServer())
}

// CountFaults returns the number of faults of each kind, most first, on one line.
func CountFaults(faults []Fault) string {
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
