package normal

import (
	"cmp"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// NewLane makes the normal lane. Its defaults are batches of 500 and 2 drains side by side, with one more for the stream
// of diverted tenants: those can take no drain from their neighbours.
func NewLane(db *pgxpool.Pool, log *slog.Logger, config queues.LaneConfig) (*queues.Lane, error) {
	config.Batch = cmp.Or(config.Batch, 500)
	drains := cmp.Or(config.Concurrency, 2)
	config.Concurrency = drains + 1
	return queues.NewLane(db, log, requests.Normal, ClaimPolicy{}, drains, config)
}
