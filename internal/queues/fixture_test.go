package queues_test

import (
	"log/slog"
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/queuestest"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
)

var discard = slog.New(slog.DiscardHandler)

// kind is one of the lanes.
type kind struct {
	queues.ClaimPolicy
	newLane queuestest.NewLane
}

var kinds = map[lanes.Lane]kind{
	lanes.Hot:    {policyOf(hot.NewLane), hot.NewLane},
	lanes.Normal: {policyOf(normal.NewLane), normal.NewLane},
}

// policyOf returns how a lane claims.
func policyOf(newLane queuestest.NewLane) queues.ClaimPolicy {
	lane, err := newLane(nil, discard, queues.LaneConfig{})
	if err != nil {
		panic(err)
	}
	return lane.Policy()
}

// onEachLane runs a test for each lane.
func onEachLane(t *testing.T, test func(t *testing.T, lane lanes.Lane, of kind)) {
	t.Helper()
	for name, of := range kinds {
		t.Run(string(name), func(t *testing.T) {
			t.Parallel()
			test(t, name, of)
		})
	}
}
