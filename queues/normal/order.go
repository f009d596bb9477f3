package normal

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// Order is how the normal lane claims.
type Order struct{}

// EnterTx reads the lane's controls and mark, and locks nothing. The transaction must be READ COMMITTED, else
// requests.ErrIsolation.
func (Order) EnterTx(ctx context.Context, tx pgx.Tx, slot int16) (queues.Turn, error) {
	return queues.ShareSlotTx(ctx, tx, requests.Normal, slot)
}

// ClaimTx claims the oldest requests that no other transaction has locked. The transaction must be READ COMMITTED, which
// EnterTx has checked.
func (Order) ClaimTx(ctx context.Context, tx pgx.Tx, turn queues.Turn, limit int) ([]requests.Request, bool, error) {
	return requests.ClaimNormalTx(ctx, tx, turn.Slot, turn.LowWater, turn.NormalLowWater, turn.Skip, limit)
}

// QueueLeave moves the stream's mark past what is finished, unless another drain is at it.
func (Order) QueueLeave(b *pgx.Batch, turn queues.Turn, _ []requests.Request, _ bool) {
	queues.QueueSharedMark(b, requests.Normal, turn)
}
