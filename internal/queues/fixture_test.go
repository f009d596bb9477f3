package queues_test

import (
	"log/slog"
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
)

var discard = slog.New(slog.DiscardHandler)

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
