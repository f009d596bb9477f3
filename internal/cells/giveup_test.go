package cells_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/internal/cells"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// A move is given up after each of its steps. The tenant goes on where it is,
// nothing of it is left in the other cell, and a later move begins again.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill("eu", 6)
	rows := func() int64 { return pgtest.Int(t, w.cells[0].Pool, `SELECT count(*) FROM audit_log`) }
	for _, last := range []string{"announced", "round", "fenced", "moving", "closed", "gone", "before active"} {
		interrupted := errors.New("interrupted after: " + last)
		recorded := rows()
		if _, err := w.move("us", cells.MoveConfig{After: func(step string) error {
			if step == last {
				return interrupted
			}
			return nil
		}}); !errors.Is(err, interrupted) {
			t.Fatalf("%s: %v, want the move interrupted", last, err)
		}
		alone := w.cells[:1] // the new cell is lost
		report, err := cells.GiveUp(t.Context(), alone, "shop")
		switch {
		case last == "gone" || last == "before active":
			if err == nil || !strings.Contains(err.Error(), "has left for the cell us") {
				t.Errorf("%s: %v, want it refused without the new cell", last, err)
			}
		case err != nil || report.From != "eu" || report.To != "us":
			t.Errorf("%s: %+v, %v without the new cell", last, report, err)
		default:
			w.fill("eu", 3) // it goes on at once
			recorded = rows()
		}
		if _, err := cells.GiveUp(t.Context(), w.cells, "shop"); err != nil {
			t.Fatalf("%s: %v", last, err)
		}
		w.check("eu")
		if n := rows(); n != recorded {
			t.Errorf("%s: %d rows of the record, want %d", last, n, recorded)
		}
		for _, table := range []string{"reservation_requests", "reservations", "audit_log", "api_keys", "tenant_state"} {
			if n := pgtest.Int(t, w.cells[1].Pool, `SELECT count(*) FROM `+table); n != 0 {
				t.Errorf("%s: %d rows of %s are left in the new cell", last, n, table)
			}
		}
	}
	if report, err := cells.GiveUp(t.Context(), w.cells, "shop"); err != nil || report.To != "eu" {
		t.Errorf("without a move: %+v, %v", report, err)
	}
	if _, err := cells.GiveUp(t.Context(), w.cells, "none"); err == nil {
		t.Error("gave up the move of a tenant that does not exist")
	}
	_, err := w.move("us", cells.MoveConfig{After: func(step string) error {
		switch step {
		case "switched", "lingered", "deleted":
			if _, err := cells.GiveUp(t.Context(), w.cells, "shop"); err == nil {
				t.Errorf("%s: gave up the move of a tenant that has arrived", step)
			}
		}
		return nil
	}})
	pgtest.Must(t, err)
	w.check("us")
}

// A program that still moves the tenant ends with an error, and changes nothing
// more.
func TestGivenUpMeanwhile(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"announced", "copied", "fenced", "moving", "closed", "gone"} {
		t.Run(last, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.fill("eu", 3)
			done := false
			_, err := w.move("us", cells.MoveConfig{After: func(step string) error {
				if step != last || done {
					return nil
				}
				done = true
				_, err := cells.GiveUp(t.Context(), w.cells, "shop")
				return err
			}})
			if err == nil || !done {
				t.Fatalf("the move went on: %v", err)
			}
			_, err = cells.GiveUp(t.Context(), w.cells, "shop") // a fence may have been made meanwhile
			pgtest.Must(t, err)
			w.fill("eu", 3)
			w.check("eu")
		})
	}
}

// A program that gives a move up and is interrupted leaves nothing that the same call
// does not finish. The tenant is active in one cell at most, and no move begins
// meanwhile.
func TestGiveUpInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.fill("eu", 3)
	for _, moved := range []string{"copied", "closed", "gone"} {
		for _, last := range []string{"refused", "reopened", "deleted"} {
			interrupted := errors.New("interrupted after: " + moved + ", " + last)
			until := func(end string) func(string) error {
				return func(step string) error {
					if step == end {
						return interrupted
					}
					return nil
				}
			}
			if _, err := w.move("us", cells.MoveConfig{After: until(moved)}); !errors.Is(err, interrupted) {
				t.Fatalf("%v, want %v", err, interrupted)
			}
			if _, err := cells.GiveUpWith(t.Context(), w.cells, "shop", until(last)); !errors.Is(err, interrupted) {
				t.Fatalf("%v, want %v", err, interrupted)
			}
			if _, err := w.move("us", cells.MoveConfig{}); err == nil || !strings.Contains(err.Error(), "is being given up") {
				t.Errorf("%v: a move began: %v", interrupted, err)
			}
			if _, err := cells.GiveUp(t.Context(), w.cells, "shop"); err != nil {
				t.Fatalf("%v: %v", interrupted, err)
			}
			w.check("eu")
			w.fill("eu", 3)
		}
	}
	_, err := w.move("us", cells.MoveConfig{})
	pgtest.Must(t, err)
	w.check("us")
}
