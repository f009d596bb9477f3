package queues_test

import (
	"log/slog"
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
)

var discard = slog.New(slog.DiscardHandler)

var policies = map[lanes.Lane]queues.ClaimPolicy{lanes.Hot: hot.ClaimPolicy{}, lanes.Normal: normal.ClaimPolicy{}}

// onEachLane runs a test for each lane.
func onEachLane(t *testing.T, test func(t *testing.T, lane lanes.Lane)) {
	t.Helper()
	for _, lane := range lanes.All() {
		t.Run(string(lane), func(t *testing.T) {
			t.Parallel()
			test(t, lane)
		})
	}
}
