package hot_test

import (
	"log/slog"
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queuestest"
	"github.com/holdfast/holdfast/queues/hot"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	queuestest.Run(t, lanes.Hot, hot.NewLane)
}

func TestConformanceOfDirectDecision(t *testing.T) {
	t.Parallel()
	queuestest.RunDirect(t, lanes.Hot, hot.NewLane)
}

// discard is the log of the lanes in these tests.
var discard = slog.New(slog.DiscardHandler)
