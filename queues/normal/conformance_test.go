package normal_test

import (
	"testing"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	lanetest.Run(t, requests.Normal, normal.NewLane)
}

func TestConformanceOfDirectDecision(t *testing.T) {
	t.Parallel()
	lanetest.RunDirect(t, requests.Normal, normal.NewLane)
}
