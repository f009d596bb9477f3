package ratelimit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
)

// Blocked is the reason why a batch cannot be decided.
type Blocked struct {
	// Items are the indexes of the items that need a row which one transaction
	// keeps locked.
	Items []int
	// Rates are the rates among these rows.
	Rates []RateRef
}

// keptLockedFor is how long one transaction must keep a row locked for the row
// to count as kept locked. A busy row is locked at any moment, but by one
// transaction after another.
const keptLockedFor = 50 * time.Millisecond

// noOwner is the owner of a row that is not locked.
const noOwner = ""

// queueOwners adds to b statements that report, for the row an item needs, the
// transaction that has it locked, or "" if none does. The last report for an
// item counts.
type queueOwners = func(b *pgx.Batch, report func(item int, owner string))

// Blocked finds the items of a batch that need a row which one transaction
// keeps locked, so that the caller can decide the other items without them. The
// caller calls it after the batch's transaction has ended, because a lock was
// not granted in time.
//
// others are for rows that items need beside their rates. Each adds statements
// to a batch that report, for an item's row, the transaction that has it
// locked, or "" if none does. The last report for an item counts.
//
// It waits for no row longer than 50 ms. If ctx ends first, it returns what it
// has found by then.
func (l *Batch) Blocked(ctx context.Context, db *pgxpool.Pool, others ...func(b *pgx.Batch, report func(item int, owner string))) (found Blocked, err error) {
	before, err := l.readLockOwners(ctx, db, others)
	if err != nil {
		return found, err
	}
	pause := time.NewTimer(keptLockedFor)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
		return found, ctx.Err()
	}
	after, err := l.readLockOwners(ctx, db, others)
	if err != nil {
		return found, err
	}
	locked := make(map[RateRef]bool)
	for _, r := range l.counters.sorted {
		owner, exists := after.rates[r.ref]
		if exists && (owner == noOwner || owner != before.rates[r.ref]) {
			continue
		}
		if !exists { // or another transaction is inserting it
			inserted, err := insertRate(ctx, db, r.ref)
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
		locked[r.ref] = true
		found.Rates = append(found.Rates, r.ref)
	}
	for i := range l.items {
		blocked := slices.ContainsFunc(l.counters.of[i], func(r *counter) bool { return locked[r.ref] })
		for k := range others {
			row := itemRow{k, i}
			owner := after.others[row]
			blocked = blocked || owner != noOwner && owner == before.others[row]
		}
		if blocked {
			found.Items = append(found.Items, i)
		}
	}
	return found, nil
}

// itemRow is the row that an item needs beside its rates: that of the kth of
// others.
type itemRow struct{ k, item int }

// lockOwners are the transactions that have locked the existing rows of the
// batch.
type lockOwners struct {
	rates  map[RateRef]string
	others map[itemRow]string
}

// A row's xmax is the last transaction that locked it. The row is free if it
// can be locked now. FOR SHARE, so that two such queries do not see each
// other's locks.
const (
	lockedRatesSQL = `
SELECT r.tenant_id, r.scope, r.xmax::text
FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, scope)
JOIN budget_rates r ON r.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND r.scope = a.scope`

	unlockedRatesSQL = `
SELECT r.tenant_id, r.scope, ''
FROM unnest($1::uuid[], $2::text[]) AS a (tenant_id, scope)
JOIN budget_rates r ON r.tenant_id = coalesce(a.tenant_id, ($1::uuid[])[1]) AND r.scope = a.scope
FOR SHARE OF r SKIP LOCKED`
)

func (l *Batch) readLockOwners(ctx context.Context, db *pgxpool.Pool, others []queueOwners) (lockOwners, error) {
	h := lockOwners{make(map[RateRef]string), make(map[itemRow]string)}
	b := &pgx.Batch{}
	if len(l.counters.sorted) > 0 {
		tenants, scopes := columnsOf(l.counters.sorted)
		read := func(rows pgx.Rows) error {
			var tenant [16]byte
			var scope, owner string
			_, err := pgx.ForEachRow(rows, []any{&tenant, &scope, &owner}, func() error {
				h.rates[RateRef{tenant, scope}] = owner
				return nil
			})
			return err
		}
		b.Queue(lockedRatesSQL, tenants, scopes).Query(read)
		b.Queue(unlockedRatesSQL, tenants, scopes).Query(read)
	}
	for k, queue := range others {
		queue(b, func(item int, owner string) { h.others[itemRow{k, item}] = owner })
	}
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return h, fmt.Errorf("find what blocks %d items: %w", len(l.items), err)
	}
	return h, nil
}

const (
	shortLockTimeoutSQL = `SET LOCAL lock_timeout = '50ms'`
	insertRateSQL       = `
INSERT INTO budget_rates (tenant_id, scope, full_at)
VALUES ($1, $2, 0)
ON CONFLICT (tenant_id, scope) DO NOTHING`
)

// insertRate inserts a full rate, which means the same as no row. It returns
// false if another transaction is inserting the row and does not end.
func insertRate(ctx context.Context, db *pgxpool.Pool, ref RateRef) (bool, error) {
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(shortLockTimeoutSQL)
		b.Queue(insertRateSQL, ref.TenantID, ref.Scope)
		return tx.SendBatch(ctx, b).Close()
	})
	if pg.IsLockTimeout(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("insert the rate %s: %w", ref.Scope, err)
	}
	return true, nil
}
