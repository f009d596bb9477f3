package checkouts

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/tenants"
)

// purgeSQL reads the clock in a sub-select, which makes it one value that
// bounds the index scan.
const purgeSQL = `
WITH old AS MATERIALIZED (
    SELECT c.tenant_id, c.checkout_id
    FROM checkouts c
    WHERE c.ended_at IS NOT NULL AND c.ended_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY c.ended_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM checkouts c
USING old
WHERE c.tenant_id = old.tenant_id AND c.checkout_id = old.checkout_id
RETURNING c.tenant_id, c.checkout_id`

// Purged counts what a purge deleted: checkouts, and the idempotency keys with
// which they were begun.
type Purged struct{ Checkouts, Keys int64 }

// PurgeEnded deletes up to limit checkouts, of all tenants, that ended longer
// ago than retention by the database's clock, the oldest first, each with the
// key of the call that began it. It waits for no lock. Several processes may
// run it at once.
func PurgeEnded(ctx context.Context, db *pgxpool.Pool, retention time.Duration, limit int) (purged Purged, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, purgeSQL, retention, limit) //nolint:rowserrcheck // ForEachRow checks it
		if err != nil {
			return err
		}
		var tenantID, checkoutID [16]byte
		var tenantIDs, checkoutIDs [][16]byte
		_, err = pgx.ForEachRow(rows, []any{&tenantID, &checkoutID}, func() error {
			tenantIDs, checkoutIDs = append(tenantIDs, tenantID), append(checkoutIDs, checkoutID)
			return nil
		})
		purged = Purged{Checkouts: int64(len(checkoutIDs))}
		if err != nil || purged.Checkouts == 0 {
			return err
		}
		purged.Keys, err = tenants.DeleteKeysTx(ctx, tx, tenantIDs, checkoutIDs)
		return err
	})
	if err != nil {
		return Purged{}, fmt.Errorf("purge ended checkouts: %w", err)
	}
	return purged, nil
}
