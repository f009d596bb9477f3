package metered

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/internal/purge"
)

// The bounds that the documentation of the fields names.
const (
	AmountMax       = amountMax
	ChargesMax      = chargesMax
	GrantPayloadMax = grantPayloadMax
	TTLMax          = ttlMax
	MintMax         = mintMax
	ResultMax       = resultMax
	TextMax         = textMax
)

// PurgeLedger is the part of Purge that deletes entries of the ledger.
func (c *Commands) PurgeLedger(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	return c.Budgets.purge(ctx, retention, limit)
}

// PurgeScopes is the part of Purge that deletes scopes.
func (c *Commands) PurgeScopes(ctx context.Context, after purge.Position, limit int) (last purge.Position, deleted int64, more bool, err error) {
	return c.Budgets.purgeScopes(ctx, after, limit)
}

// PurgeKeys is the part of Purge that deletes idempotency keys.
func (c *Commands) PurgeKeys(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	return c.purgeKeys(ctx, retention, limit)
}
