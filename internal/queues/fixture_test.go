package queues_test

import (
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
)

var discard = slog.New(slog.DiscardHandler)

// policies are how the lanes claim.
var policies = map[lanes.Lane]queues.ClaimPolicy{lanes.Hot: policyOf(hot.NewLane), lanes.Normal: policyOf(normal.NewLane)}

// policyOf returns how a lane claims.
func policyOf(newLane func(*pgxpool.Pool, *slog.Logger, queues.LaneConfig) (*queues.Lane, error)) queues.ClaimPolicy {
	lane, err := newLane(nil, discard, queues.LaneConfig{})
	if err != nil {
		panic(err)
	}
	return lane.Policy()
}

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
