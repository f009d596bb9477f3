package metered

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgerr"
)

// RateRef names a rate.
type RateRef struct {
	TenantID uuid.UUID
	Scope    string
}

// Blocked is what keeps a group from being let through.
type Blocked struct {
	// Places are those of the visits that need a row which another transaction does not give back.
	Places []int
	// Rates are those rows, as far as they are rates.
	Rates []RateRef
}

// heldFor is for how long a row must be held by one transaction to be taken for one that is not given back. A busy row is
// locked at any moment, but by one after the other.
const heldFor = 50 * time.Millisecond

// Blocked finds which visits of a group that was not let through, because a lock was not granted in time, need a row that
// one transaction holds and goes on holding, so that the others can be let through without them. It takes no part in the
// group's transaction, which has ended. It waits for no row longer than heldFor, and with ctx's end it tells what it has
// found by then.
func (t *Turnstile) Blocked(ctx context.Context, db *pgxpool.Pool) (found Blocked, err error) {
	before, err := t.look(ctx, db)
	if err != nil {
		return found, err
	}
	pause := time.NewTimer(heldFor)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return found, ctx.Err()
	}
	after, err := t.look(ctx, db)
	if err != nil {
		return found, err
	}
	held := make(map[rateKey]bool)
	for _, r := range t.rates.order {
		holder, there := after.rates[r.key]
		if there && (holder == free || holder != before.rates[r.key]) {
			continue
		}
		if !there { // or somebody inserts it
			inserted, err := insertRate(ctx, db, r.key)
			if ctx.Err() != nil {
				break
			}
			if err != nil {
				return found, err
			}
			if inserted {
				continue
			}
		}
		held[r.key] = true
		found.Rates = append(found.Rates, RateRef{r.key.tenant, r.key.scope})
	}
	for i, v := range t.visits {
		blocked := slices.ContainsFunc(v.rates, func(r counted) bool { return held[rateKey{v.tenant, r.Scope}] })
		if token := t.tokens.of[i]; token != nil {
			holder, there := after.tokens[token.key]
			blocked = blocked || there && holder != free && holder == before.tokens[token.key]
		}
		if blocked {
			found.Places = append(found.Places, i)
		}
	}
	return found, nil
}

// free is the holder of a row that nobody holds.
const free = ""

// holders says which transaction holds each row that is there.
type holders struct {
	rates  map[rateKey]string
	tokens map[tokenKey]string
}

// Two looks at one moment don't see each other's locks.
const (
	heldRatesSQL = `
SELECT r.tenant_id, r.scope, r.xmax::text
FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, scope)
JOIN budget_rates r ON r.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND r.scope = a.scope`

	freeRatesSQL = `
SELECT r.tenant_id, r.scope, ''
FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, scope)
JOIN budget_rates r ON r.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND r.scope = a.scope
FOR SHARE OF r SKIP LOCKED`

	heldTokensSQL = `
SELECT t.tenant_id, t.token_hash, t.xmax::text
FROM unnest($1::uuid[], $2::bytea[]) AS a (tenant_id, token_hash)
JOIN expiring_tokens t USING (tenant_id, token_hash)`

	freeTokensSQL = `
SELECT t.tenant_id, t.token_hash, ''
FROM unnest($1::uuid[], $2::bytea[]) AS a (tenant_id, token_hash)
JOIN expiring_tokens t USING (tenant_id, token_hash)
FOR SHARE OF t SKIP LOCKED`
)

// look says who holds the group's rows at the moment.
func (t *Turnstile) look(ctx context.Context, db *pgxpool.Pool) (holders, error) {
	h := holders{make(map[rateKey]string), make(map[tokenKey]string)}
	b := &pgx.Batch{}
	if len(t.rates.order) > 0 {
		tenants, scopes := rateColumns(t.rates.order)
		read := func(rows pgx.Rows) error {
			var tenant [16]byte
			var scope, holder string
			_, err := pgx.ForEachRow(rows, []any{&tenant, &scope, &holder}, func() error {
				h.rates[rateKey{tenant, scope}] = holder
				return nil
			})
			return err
		}
		b.Queue(heldRatesSQL, tenants, scopes).Query(read)
		b.Queue(freeRatesSQL, tenants, scopes).Query(read)
	}
	if len(t.tokens.asked) > 0 {
		keys := make([]tokenKey, len(t.tokens.asked))
		for i, token := range t.tokens.asked {
			keys[i] = token.key
		}
		tenants, hashes := columnsOf(keys)
		read := func(rows pgx.Rows) error {
			var tenant [16]byte
			var hash []byte
			var holder string
			_, err := pgx.ForEachRow(rows, []any{&tenant, &hash, &holder}, func() error {
				h.tokens[tokenKey{tenant, [32]byte(hash)}] = holder
				return nil
			})
			return err
		}
		b.Queue(heldTokensSQL, tenants, hashes).Query(read)
		b.Queue(freeTokensSQL, tenants, hashes).Query(read)
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return h, fmt.Errorf("find what blocks %d visits: %w", len(t.visits), err)
	}
	return h, nil
}

const (
	impatientSQL  = `SET LOCAL lock_timeout = '50ms'`
	insertRateSQL = `
INSERT INTO budget_rates (tenant_id, scope, full_at)
VALUES ($1, $2, 0)
ON CONFLICT (tenant_id, scope) DO NOTHING`
)

// insertRate makes a full rate that has no row, which says the same; false if somebody else is at that and does not come to
// an end.
func insertRate(ctx context.Context, db *pgxpool.Pool, key rateKey) (bool, error) {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(impatientSQL)
		b.Queue(insertRateSQL, key.tenant, key.scope)
		return tx.SendBatch(ctx, b).Close()
	})
	if pgerr.Code(err) == "55P03" {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("make the rate %s: %w", key.scope, err)
	}
	return true, nil
}
