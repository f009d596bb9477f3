package hot_test

import (
	"log/slog"
	"testing"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, requests.Hot, hot.NewLane)
}

func TestConformanceOfDirectDecision(t *testing.T) {
	t.Parallel()
	lanetest.RunDirect(t, requests.Hot, hot.NewLane)
}

// discard is where the lanes of these tests log.
var discard = slog.New(slog.DiscardHandler)
