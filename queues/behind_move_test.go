package queues_test

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// Where the sequence is behind the number that a move between the lanes recorded (rows were copied without it), the move
// ends all the same.
func TestSequenceBehindAMove(t *testing.T) {
	t.Parallel()
	b := lanetest.New(t, requests.Hot, hot.NewLane)
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
	for deadline := time.Now().Add(30 * time.Second); b.Int(`SELECT count(*) FROM hot_variants WHERE state <> 'hot'`) > 0; b.Tick(lane) {
		if time.Now().After(deadline) {
			t.Fatal("the move is stuck")
		}
	}
	b.Sound()
}
