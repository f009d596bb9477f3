package reservationrows

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const lostSQL = `
SELECT lost.resource_key
FROM reservations lost
WHERE lost.tenant_id = $1 AND lost.holder_id = $2 AND lost.resource_kind = $3 AND lost.dismissed_at IS NULL
  AND (lost.status = 'expired' OR (lost.status = 'held' AND lost.expires_at <= $4))
  AND NOT EXISTS (
      SELECT
      FROM reservations again
      WHERE again.tenant_id = lost.tenant_id AND again.holder_id = lost.holder_id
        AND again.resource_kind = lost.resource_kind AND again.resource_key = lost.resource_key
        AND again.held_at >= lost.expires_at)
LIMIT 1`

// LostTx returns a resource that the holder lost to expiry, swept or not, and has neither dismissed nor held again
// since; "" if there is none. now is a reading of the database's clock, taken after the holder's reservations were
// locked.
func LostTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kind, holderID string, now time.Time) (string, error) {
	rows, err := tx.Query(ctx, lostSQL, tenantID, holderID, kind, now)
	if err != nil {
		return "", fmt.Errorf("look for holds %s lost: %w", holderID, err)
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(keys) == 0 {
		return "", err
	}
	return keys[0], nil
}

const dismissSQL = `
UPDATE reservations
SET dismissed_at = clock_timestamp()
WHERE tenant_id = $1 AND holder_id = $2 AND resource_kind = $3 AND ($4 = '' OR resource_key = $4)
  AND status = 'expired' AND dismissed_at IS NULL`

// DismissTx notes that the holder knows of what it lost to expiry, on one resource or (key "") on all, so that LostTx
// no longer reports it. It is no transition: the reservation's status and its record stay as they are.
func DismissTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, kind, holderID, key string) error {
	if _, err := tx.Exec(ctx, dismissSQL, tenantID, holderID, kind, key); err != nil {
		return fmt.Errorf("dismiss what %s lost: %w", holderID, err)
	}
	return nil
}
