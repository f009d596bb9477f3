package metered

import (
	"context"
	"fmt"
	"time"
)

// purgeTokensSQL asks the clock once, so that it bounds the index.
const purgeTokensSQL = `
WITH old AS MATERIALIZED (
    SELECT tenant_id, token_hash
    FROM expiring_tokens
    WHERE expires_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY expires_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM expiring_tokens t
USING old
WHERE t.tenant_id = old.tenant_id AND t.token_hash = old.token_hash`

// PurgeExpired deletes up to limit tokens, of all tenants, that expired longer ago than retention by the database's clock,
// spent or not, the earliest first, and says how many. From then on they are unknown. Several may run at once.
func (s *TokenStore) PurgeExpired(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	tag, err := s.db.Exec(ctx, purgeTokensSQL, max(retention, 0), limit)
	if err != nil {
		return 0, fmt.Errorf("purge expired tokens: %w", err)
	}
	return tag.RowsAffected(), nil
}
