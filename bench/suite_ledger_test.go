package main

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseProcessCPU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stat string
		want       time.Duration
		ok         bool
	}{
		{"user and system", "7 (api) S 1 7 7 0 -1 4194560 100 0 0 0 150 25 9 9 20 0\n", 1750 * time.Millisecond, true},
		{"a name with a parenthesis", "7 (a) b 1) S 1 7 7 0 -1 4194560 100 0 0 0 1 2 9 9 20 0\n", 30 * time.Millisecond, true},
		{"too short", "7 (api) S 1 7\n", 0, false},
		{"no number", "7 (api) S 1 7 7 0 -1 4194560 100 0 0 0 x 25\n", 0, false},
	} {
		if got, err := parseProcessCPU(c.stat); got != c.want && c.ok || (err == nil) != c.ok {
			t.Errorf("%s: %s, %v, want %s, %t", c.name, got, err, c.want, c.ok)
		}
	}
	if _, err := cpuOf(os.Getpid()); err != nil {
		if _, ok := readCPU(); ok {
			t.Errorf("the time of this process: %v", err)
		}
	}
}

// Sessions of one program are one stage, and one that was opened meanwhile
// counts from its start.
func TestStagesSince(t *testing.T) {
	t.Parallel()
	before := stages{1: {"API", 100}, 2: {"Postgres for holdfast-api", 10}}
	after := stages{1: {"API", 150}, 2: {"Postgres for holdfast-api", 30}, 3: {"Postgres for holdfast-api", 5}}
	want := map[string]time.Duration{"API": 50, "Postgres for holdfast-api": 25}
	if diff := cmp.Diff(want, after.since(before)); diff != "" {
		t.Errorf("since (-want +got):\n%s", diff)
	}
}

func TestLedgerMeasure(t *testing.T) {
	t.Parallel()
	b := &bench{stderr: t.Output()}
	m := b.ledgerMeasure("ledger_cpu_us", "µs", map[string]float64{"worker": 1000, "API": 3000, "seldom": 1, "load generator": 1000}, 100)
	if want := "per request, of 100; API 30; load generator 10; worker 10"; m.Note != want || m.Value < 50 || m.Value > 50.1 || m.OK != nil {
		t.Errorf("%+v, want 50 and %q", m, want)
	}
}
