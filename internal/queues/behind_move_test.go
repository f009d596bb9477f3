package queues_test

import (
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/testkit"
)

// A move between the lanes ends even if the sequence is behind the number that
// the move recorded. That is the case after rows were copied without their
// sequence.
func TestSequenceBehindAMove(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 1000)
	lane := b.Lane(queues.LaneConfig{})
	b.Submit("a", "shoe", 1)
	b.Tick(lane)
	b.Exec(`UPDATE hot_variants SET state = 'entering', admitted_before = 99999999999`)
	_, commit := b.Open("late") // an admission that began after
	b.Tick(lane)
	if n := b.Int(`SELECT count(*) FROM hot_variants WHERE state = 'entering' AND admitted_before < 1000`); n != 1 {
		t.Error("the number that the move waits for was not recorded again")
	}
	commit()
	b.Until("the move is over", func() bool {
		b.Tick(lane)
		return b.Int(`SELECT count(*) FROM hot_variants WHERE state <> 'hot'`) == 0
	})
	b.CheckInvariants()
}
