package metered

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/internal/purge"
	"github.com/holdfast/holdfast/internal/tokens"
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

// purge deletes up to limit entries, of all tenants, that are older than
// retention and than any window reaches back, the oldest first.
func (l *BudgetLedger) purge(ctx context.Context, retention time.Duration, limit int) (int64, error) {
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

// purgeScopes reads up to limit scopes after a position, of all tenants, and
// deletes those in which nothing was charged for longer than any window reaches
// back: they mean the same as no row.
func (l *BudgetLedger) purgeScopes(ctx context.Context, after purge.Position, limit int) (last purge.Position, deleted int64, more bool, err error) {
	return purge.Idle(ctx, l.db, "scopes", purgeScopesSQL, after, limit, l.windowReach())
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

// purgeKeys deletes up to limit idempotency keys, of all tenants, that are
// older than retention by the database's clock, the oldest first. The key of an
// ended command is kept for the retention after its end, because a second run
// of its job finds there that it has ended.
func (c *Commands) purgeKeys(ctx context.Context, retention time.Duration, limit int) (int64, error) {
	return purge.Old(ctx, c.db, "command keys", purgeKeysSQL, retention, limit)
}

// Purged is how many rows of each table one purge deleted.
type Purged struct {
	Tokens, LedgerEntries, Scopes, CommandKeys int64
	// More means that a table reached the limit, so that rows may be left.
	More bool
}

// Purge deletes, of all tenants, what is older than the retention by the
// database's clock: tokens, spent or not, since they expired; entries of the
// ledger, unless a window can still count them; idempotency keys, since their
// command began and ended. It also deletes scopes in which nothing was charged
// for longer than any window reaches back. They mean the same as no row.
//
// It deletes in batches, the oldest first, until it has read as many rows of a
// table as the limit. With an error it returns what it has deleted before.
// Several processes may run it at once.
//
// From then on a purged token or command is unknown, a purged entry can no
// longer be settled, and a command that is sent again is a new one. If the old
// one's job still waits, it is worked nevertheless. So keep keys for longer
// than River takes to run a job again; hours are enough.
func (c *Commands) Purge(ctx context.Context, retention time.Duration, limit int) (p Purged, err error) {
	for _, table := range []struct {
		deleted *int64
		batch   func() (int64, error)
	}{
		{&p.Tokens, func() (int64, error) { return tokens.Purge(ctx, c.db, retention, purge.Batch) }},
		{&p.LedgerEntries, func() (int64, error) { return c.Budgets.purge(ctx, retention, purge.Batch) }},
		{&p.CommandKeys, func() (int64, error) { return c.purgeKeys(ctx, retention, purge.Batch) }},
	} {
		var bounded bool
		*table.deleted, bounded, err = purge.InBatches(limit, func() (int64, bool, error) {
			n, err := table.batch()
			return n, n >= purge.Batch, err
		})
		p.More = p.More || bounded
		if err != nil {
			return p, err
		}
	}
	p.Scopes, _, err = c.scopes.On(limit, func(after purge.Position) (purge.Position, int64, bool, error) {
		return c.Budgets.purgeScopes(ctx, after, purge.Batch)
	})
	return p, err
}
