package queues_test

import (
	"log/slog"
	"testing"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

var discard = slog.New(slog.DiscardHandler)

// kind is one of the lanes.
type kind struct {
	queues.ClaimPolicy
	newLane lanetest.NewLane
}

var kinds = map[string]kind{
	requests.Hot:    {hot.ClaimPolicy{}, hot.NewLane},
	requests.Normal: {normal.ClaimPolicy{}, normal.NewLane},
}

// onEachLane runs a test for each lane, given by its name.
func onEachLane(t *testing.T, test func(t *testing.T, lane string, of kind)) {
	t.Helper()
	for name, of := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, of)
		})
	}
}
