package normal_test

import (
	"testing"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queuestest"
	"github.com/holdfast/holdfast/queues/normal"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	queuestest.Run(t, lanes.Normal, normal.NewLane)
}

func TestConformanceOfDirectDecision(t *testing.T) {
	t.Parallel()
	queuestest.RunDirect(t, lanes.Normal, normal.NewLane)
}
