package normal

import (
	"cmp"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// NewLane makes the normal lane. Its defaults are batches of 500 and 2 drains side by side.
func NewLane(db *pgxpool.Pool, log *slog.Logger, config queues.LaneConfig) (*queues.Lane, error) {
	config.Slots = nil // it has one slot, which everybody serves
	config.Batch = cmp.Or(config.Batch, 500)
	config.Concurrency = cmp.Or(config.Concurrency, 2)
	return queues.NewLane(db, log, requests.Normal, Order{}, config.Concurrency, config)
}
