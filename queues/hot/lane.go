package hot

import (
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// NewLane makes the hot lane. Its defaults are batches of 2,000 and 4 drains at one time, each at a slot of its own.
func NewLane(db *pgxpool.Pool, log *slog.Logger, config queues.LaneConfig) (*queues.Lane, error) {
	if config.Batch == 0 {
		config.Batch = 2000
	}
	if config.Concurrency == 0 {
		config.Concurrency = 4
	}
	return queues.NewLane(db, log, requests.Hot, ClaimPolicy{}, 1, config)
}
