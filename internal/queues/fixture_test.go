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
	lanes.Hot:    {hot.ClaimPolicy{}, hot.NewLane},
	lanes.Normal: {normal.ClaimPolicy{}, normal.NewLane},
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
