package metered

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/internal/purge"
)

// windowReach is how far back a window of the greatest length reaches. A purge
// must not delete anything within it.
func (l *BudgetLedger) windowReach() time.Duration {
	return l.windowMax + l.windowMax/bucketsPerWindow + time.Second
}

// purgeLedgerSQL reads the clock once, so that the clock bounds the index scan.
const purgeLedgerSQL = `
WITH old AS MATERIALIZED (
    SELECT tenant_id, scope, recorded_at
    FROM budget_ledger
    WHERE recorded_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY recorded_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM budget_ledger l
USING old
WHERE l.tenant_id = old.tenant_id AND l.scope = old.scope AND l.recorded_at = old.recorded_at`

// Purge deletes up to limit entries, of all tenants, that are older than
// retention and than any window reaches back, the oldest first, and returns how
// many. What was reserved by a purged entry can no longer be settled. Several
// processes may run it at once.
func (l *BudgetLedger) Purge(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	return purge.Old(ctx, l.db, "the ledger", purgeLedgerSQL, max(retention, l.windowReach()), limit)
}

// purgeScopesSQL compares the clock with rows, not with an index: last_at has
// none, because an index would cost every charge.
const purgeScopesSQL = `
WITH piece AS MATERIALIZED (
    SELECT s.tenant_id, s.scope, s.last_at < (SELECT clock_timestamp()) - $4::interval AS idle
    FROM budget_scopes s
    WHERE (s.tenant_id, s.scope) > ($1, $2)
    ORDER BY s.tenant_id, s.scope
    LIMIT $3
), idle AS MATERIALIZED (
    SELECT s.tenant_id, s.scope
    FROM piece
    JOIN budget_scopes s USING (tenant_id, scope)
    WHERE piece.idle AND s.last_at < (SELECT clock_timestamp()) - $4::interval
    FOR UPDATE OF s SKIP LOCKED
), deleted AS (
    DELETE FROM budget_scopes s
    USING idle
    WHERE s.tenant_id = idle.tenant_id AND s.scope = idle.scope
    RETURNING s.scope
)
SELECT p.tenant_id, p.scope, (SELECT count(*) FROM deleted) AS deleted, (SELECT count(*) FROM piece) AS examined
FROM piece p
ORDER BY p.tenant_id DESC, p.scope DESC
LIMIT 1`

// ScopePosition is a position in a purge's walk through the scopes of all
// tenants.
type ScopePosition = purge.Position

// PurgedScopes is what one step of the walk did.
type PurgedScopes = purge.Step

// PurgeScopes reads up to limit scopes after a position, of all tenants, and
// deletes those in which nothing was charged for longer than any window reaches
// back: they mean the same as no row. Several processes may run it at once.
func (l *BudgetLedger) PurgeScopes(ctx context.Context, after ScopePosition, limit int) (PurgedScopes, error) {
	return purge.Idle(ctx, l.db, "scopes", purgeScopesSQL, after, limit, l.windowReach())
}

// purgeTokensSQL reads the clock once, so that the clock bounds the index scan.
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

// PurgeExpired deletes up to limit tokens, of all tenants, that expired longer
// ago than retention by the database's clock, spent or not, the earliest first,
// and returns how many. From then on they are unknown. Several processes may
// run it at once.
func (s *TokenStore) PurgeExpired(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	return purge.Old(ctx, s.db, "expired tokens", purgeTokensSQL, max(retention, 0), limit)
}

// purgeKeysSQL reads the clock once, so that the clock bounds the index scan.
const purgeKeysSQL = `
WITH old AS MATERIALIZED (
    SELECT tenant_id, queue, idempotency_key
    FROM command_keys
    WHERE created_at < (SELECT clock_timestamp()) - $1::interval
      AND (ended_at IS NULL OR ended_at < (SELECT clock_timestamp()) - $1::interval)
    ORDER BY created_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM command_keys k
USING old
WHERE k.tenant_id = old.tenant_id AND k.queue = old.queue AND k.idempotency_key = old.idempotency_key`

// PurgeKeys deletes up to limit idempotency keys, of all tenants, that are
// older than retention by the database's clock, the oldest first, and returns
// how many. The key of an ended command is kept for the retention after its
// end, because a second run of its job finds there that it has ended. Retain
// keys for longer than River takes to run a job again; hours are enough.
//
// A command sent again after that is a new one, and the old one is unknown. If
// the old one's job still waits, it is worked nevertheless. Several processes
// may run it at once.
func (s *JobStore) PurgeKeys(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	return purge.Old(ctx, s.db, "command keys", purgeKeysSQL, retention, limit)
}
