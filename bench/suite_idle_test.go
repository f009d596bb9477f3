package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A log arrives in pieces that do not end with its lines, and a statement may
// have several lines.
func TestStatementLog(t *testing.T) {
	t.Parallel()
	const at = "2026-11-22 12:00:00.123 UTC [42] "
	text := at + "[shop] [holdfast-api] LOG:  statement: begin\n" +
		at + "[shop] [holdfast-api] LOG:  execute stmt_1: SELECT a\n\tFROM b\n\n" +
		at + "[shop] [holdfast-api] DETAIL:  parameters: $1 = 'x'\n\tnot a statement\n" +
		at + "[other] [holdfast-api] LOG:  statement: rollback\n" +
		at + "[shop] [] ERROR:  statement: no\n" +
		at + "[shop] [[odd]] LOG:  duration: 1 ms\n" +
		at + "[shop] [] LOG:  execute <unnamed>: SELECT 1\n"
	for size := 1; size < len(text); size += 7 {
		l := new(statementLog)
		write := func(text string) {
			for left := []byte(text); len(left) > 0; {
				n := min(size, len(left))
				if written, err := l.Write(left[:n]); err != nil || written != n {
					t.Fatalf("%d of %d bytes were taken, %v", written, n, err)
				}
				left = left[n:]
			}
		}
		write(text) // before it is asked for
		l.record()
		write(text)
		want := []logged{
			{"shop", "holdfast-api", "begin"},
			{"shop", "holdfast-api", "SELECT a FROM b "},
			{"shop", "", "SELECT 1"},
		}
		if diff := cmp.Diff(want, l.stop("shop"), cmp.AllowUnexported(logged{})); diff != "" {
			t.Fatalf("in pieces of %d (-want +got):\n%s", size, diff)
		}
		write(text)
		if found := l.stop("shop"); len(found) > 0 {
			t.Errorf("%d statements were kept afterwards", len(found))
		}
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`-- name: LeaderAttemptReelect :one UPDATE "river".river_leader SET expires_at = now()`: kindLeader,
		`SELECT elected_at FROM "river".river_leader`:                                           kindRiver,
		`LISTEN "river.river_leadership"`:                                                       kindRiver,
		"begin":                                                                                 kindBegin,
		"COMMIT;":                                                                               kindBegin,
		"begin isolation level repeatable read":                                                 kindBegin,
		"-- ping":                                                                               kindSession,
		"DISCARD PLANS":                                                                         kindSession,
		"":                                                                                      kindSession,
		" SELECT s.slot FROM lane_slots s":                                                      kindOthers,
	} {
		if got := kindOf(logged{text: text}); got != want {
			t.Errorf("%q is of %s, want %s", text, got, want)
		}
	}
}

func TestIdleMeasures(t *testing.T) {
	t.Parallel()
	found := []logged{
		{text: "UPDATE river_leader SET x = 1"}, {text: "SELECT 1 FROM river_job"}, {text: "begin"}, {text: "commit"}, {text: "SELECT 1"},
	}
	measures := idleMeasures(found, written{120, 200}.since(written{100, 170}), 30*time.Second)
	if len(measures) != 2 || measures[0].Value != 10 || measures[1].Value != 40 {
		t.Fatalf("%+v, want 10 statements and 40 syncs", measures)
	}
	const note = "renewals of River's leader 2; River's others 2; BEGIN, COMMIT and ROLLBACK 4; pings and settings of sessions 0; ticks and maintenance 2"
	if measures[0].Note != note {
		t.Errorf("the note is %q, want %q", measures[0].Note, note)
	}
	if !strings.Contains(measures[1].Note, "60 transactions drew an id, 2 of them to renew River's leader") {
		t.Errorf("the note is %q", measures[1].Note)
	}
	for _, m := range measures {
		if m.OK != nil || m.result() != "" {
			t.Errorf("%s is judged without a target: %q", m.Measure, m.result())
		}
	}
}
