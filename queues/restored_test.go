package queues_test

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// A database that was restored into another cluster carries transaction ids that cluster will not give out for years: the
// marks move all the same, and a move between the lanes that was under way ends.
func TestRestoredElsewhere(t *testing.T) {
	t.Parallel()
	for name, newLane := range map[string]lanetest.NewLane{requests.Hot: hot.NewLane, requests.Normal: normal.NewLane} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := lanetest.New(t, name, newLane)
			b.Stock("shoe", 1000)
			lane := b.Lane(queues.LaneConfig{})
			first := b.Submit("a", "shoe", 1)
			b.Tick(lane)
			b.Exec(`UPDATE lane_slots SET next_horizon = '99999999999' WHERE slot >= 0`)
			b.Exec(`UPDATE hot_variants SET state = 'entering', horizon = '99999999999'`)
			for deadline := time.Now().Add(30 * time.Second); ; {
				b.Submit("a", "shoe", 1)
				b.Tick(lane)
				mark := b.Int(`SELECT max(low_water) FROM lane_slots WHERE lane = $1`, name)
				if moving := b.Int(`SELECT count(*) FROM hot_variants WHERE state <> 'hot'`); moving == 0 && mark > first.Sequence {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the mark or a move is stuck")
				}
			}
			b.Sound()
		})
	}
}
