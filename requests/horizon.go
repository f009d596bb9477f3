package requests

import (
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
)

// enterSQL makes the transaction an admission under way. It comes before a sequence number is drawn.
const enterSQL = `SELECT ` + horizon.EnterSequence + ` FROM reservation_requests_sequence_seq`

// DrawnSQL gives the last sequence number drawn, 0 for none.
const DrawnSQL = `SELECT ` + horizon.Drawn + ` FROM reservation_requests_sequence_seq`

const lowestSQL = `SELECT ` + horizon.LowestWriter + ` FROM reservation_requests_sequence_seq`

// Horizon is how far the status table is complete.
type Horizon struct {
	// Drawn is the last sequence number drawn.
	Drawn int64
	// Lowest is below every number that an admission under way has drawn or will draw; nil if none is under way.
	Lowest *int64
}

// Settled is a sequence number at or below which every request is visible to the next statement, or never will be.
func (h Horizon) Settled() int64 {
	if h.Lowest != nil {
		return min(h.Drawn, *h.Lowest)
	}
	return h.Drawn
}

// QueueHorizon adds to b the statements that read the horizon into h. The transaction must be READ COMMITTED: only the
// statements behind them see all that is settled.
func QueueHorizon(b *pgx.Batch, h *Horizon) {
	b.Queue(DrawnSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&h.Drawn) })
	b.Queue(lowestSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&h.Lowest) })
}
