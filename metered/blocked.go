package metered

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// RateRef names a rate.
type RateRef struct {
	TenantID uuid.UUID
	Scope    string
}

// Blocked is what keeps a group from being let through.
type Blocked struct {
	// Places are those of the visits that need a row which another transaction has locked.
	Places []int
	// Rates are those that are locked.
	Rates []RateRef
}

const blockedRatesSQL = `
WITH asked AS MATERIALIZED (
    SELECT coalesce(a.tenant_id, ($1::uuid[])[1]) AS tenant_id, a.scope
    FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, scope)
), free AS MATERIALIZED (
    SELECT r.tenant_id, r.scope
    FROM asked
    JOIN budget_rates r USING (tenant_id, scope)
    FOR NO KEY UPDATE OF r SKIP LOCKED
)
SELECT r.tenant_id, r.scope
FROM asked
JOIN budget_rates r USING (tenant_id, scope)
WHERE NOT EXISTS (SELECT FROM free WHERE free.tenant_id = r.tenant_id AND free.scope = r.scope)`

const blockedTokensSQL = `
WITH asked AS MATERIALIZED (
    SELECT a.tenant_id, a.token_hash
    FROM unnest($1::uuid[], $2::bytea[]) AS a (tenant_id, token_hash)
), free AS MATERIALIZED (
    SELECT t.tenant_id, t.token_hash
    FROM asked
    JOIN expiring_tokens t USING (tenant_id, token_hash)
    FOR NO KEY UPDATE OF t SKIP LOCKED
)
SELECT t.tenant_id, t.token_hash
FROM asked
JOIN expiring_tokens t USING (tenant_id, token_hash)
WHERE NOT EXISTS (SELECT FROM free WHERE free.tenant_id = t.tenant_id AND free.token_hash = t.token_hash)`

// Blocked finds, without waiting, which visits of a group that was not let through because a lock was not granted in time
// need a row that is still locked, so that the others can be let through without them. It takes no part of the group's
// transaction, which has ended. A row that another transaction inserts only now is not found.
func (t *Turnstile) Blocked(ctx context.Context, db *pgxpool.Pool) (found Blocked, err error) {
	rates, tokens := make(map[rateKey]bool), make(map[tokenKey]bool)
	b := &pgx.Batch{}
	if len(t.rates.order) > 0 {
		tenants, scopes := rateColumns(t.rates.order)
		b.Queue(blockedRatesSQL, tenants, scopes).Query(func(rows pgx.Rows) error {
			var tenant [16]byte
			var scope string
			_, err := pgx.ForEachRow(rows, []any{&tenant, &scope}, func() error {
				rates[rateKey{tenant, scope}] = true
				found.Rates = append(found.Rates, RateRef{tenant, scope})
				return nil
			})
			return err
		})
	}
	if len(t.tokens.asked) > 0 {
		keys := make([]tokenKey, len(t.tokens.asked))
		for i, token := range t.tokens.asked {
			keys[i] = token.key
		}
		tenants, hashes := columnsOf(keys)
		b.Queue(blockedTokensSQL, tenants, hashes).Query(func(rows pgx.Rows) error {
			var tenant [16]byte
			var hash []byte
			_, err := pgx.ForEachRow(rows, []any{&tenant, &hash}, func() error {
				tokens[tokenKey{tenant, [32]byte(hash)}] = true
				return nil
			})
			return err
		})
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return Blocked{}, fmt.Errorf("find what blocks %d visits: %w", len(t.visits), err)
	}
	for i, v := range t.visits {
		blocked := t.tokens.of[i] != nil && tokens[t.tokens.of[i].key]
		for _, r := range v.rates {
			blocked = blocked || rates[rateKey{v.tenant, r.Scope}]
		}
		if blocked {
			found.Places = append(found.Places, i)
		}
	}
	return found, nil
}
