package normal

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

// ClaimPolicy is how the normal lane claims.
type ClaimPolicy struct{}

// AcquireTx reads the lane's controls and mark, and locks nothing. The transaction must be READ COMMITTED, else
// requests.ErrIsolation.
func (ClaimPolicy) AcquireTx(ctx context.Context, tx pgx.Tx, slot int16) (queues.Lease, error) {
	return queues.SharedLeaseTx(ctx, tx, requests.Normal, slot)
}

// ClaimTx claims the oldest requests that no other transaction has locked. The transaction must be READ COMMITTED, which
// AcquireTx has checked.
func (ClaimPolicy) ClaimTx(ctx context.Context, tx pgx.Tx, lease queues.Lease, limit int) (claim queues.Claim, err error) {
	claim.Requests, claim.More, err = requests.ClaimNormalTx(ctx, tx, requests.NormalClaim{
		Slot: lease.Slot, LowWater: lease.LowWater, LowestWater: lease.NormalLowWater, Skip: lease.Skip, Only: lease.Only, Limit: limit,
	})
	return claim, err
}

// QueueCheckpoint adds nothing.
func (ClaimPolicy) QueueCheckpoint(*pgx.Batch, queues.Lease) {}
