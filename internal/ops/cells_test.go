package ops_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// The overview of one cell has all of them in short, also one whose database does
// not respond.
func TestOverviewOfCells(t *testing.T) {
	t.Parallel()
	eu, us := newFixture(t, pgtest.New(t)), newFixture(t, pgtest.New(t))
	us.Stock("shirt", 5)
	for _, cart := range []string{"a", "b"} {
		us.Submit(cart, "shirt", 1)
	}
	us.Exec(`UPDATE lane_slots SET paused = true WHERE lane = 'normal'`)
	asia := pgtest.New(t)
	var cells ops.Cells
	ops.NewReader(us.DB, ops.Config{Cell: "us", Cells: &cells})
	ops.NewReader(asia, ops.Config{Cell: "asia", Cells: &cells})
	asia.Close()
	var state ops.Overview
	eu.Until("the cells are read", func() bool {
		state, _ = eu.read(ops.Config{Cell: "eu", Cells: &cells})
		return len(state.Cells) == 3 && state.Cells[1].Available && state.Cells[2].Available
	})
	down, own, other := state.Cells[0], state.Cells[1], state.Cells[2]
	if down.Cell != "asia" || down.Available || down.Own || down.Paused == nil {
		t.Errorf("down: %+v", down)
	}
	if own.Cell != "eu" || !own.Available || !own.Own || own.Depth != 0 {
		t.Errorf("own: %+v", own)
	}
	if other.Cell != "us" || !other.Available || other.Own || other.Depth != 2 || !slices.Equal(other.Paused, []lanes.Lane{lanes.Normal}) {
		t.Errorf("other: %+v", other)
	}
	// After a while without any caller the figures are not those of before.
	us.Exec(`UPDATE lane_slots SET paused = false WHERE lane = 'normal'`)
	eu.Until("the cells are read again", func() bool {
		cells.Age(time.Hour)
		state, _ = eu.read(ops.Config{Cell: "eu", Cells: &cells})
		return state.Cells[2].Available
	})
	if len(state.Cells[2].Paused) > 0 {
		t.Errorf("an hour later: %+v", state.Cells[2])
	}
	if again, _ := eu.read(ops.Config{Cell: "eu", Cells: &cells}); len(again.Cells) != 3 {
		t.Errorf("a second reader of one cell makes %d cells", len(again.Cells))
	}
	if alone, _ := eu.read(ops.Config{}); alone.Cells != nil {
		t.Errorf("one cell has %+v", alone.Cells)
	}
}
