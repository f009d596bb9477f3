package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
)

// Ref names a variant's stock.
type Ref struct {
	TenantID  uuid.UUID
	VariantID string
}

// counter is a stock row under its lock.
type counter struct {
	TenantID           uuid.UUID
	VariantID          string
	Stock, Reserved    int64
	Tracked, Backorder bool
	HoldTTLSeconds     *int32
	MaxPerCart         *int32
	NamedUnits         bool
}

const lockSQL = `
SELECT s.tenant_id, s.variant_id, s.stock, s.reserved, s.tracked, s.backorder, s.hold_ttl_seconds, s.max_per_cart, s.named_units
FROM inventory_stocks s
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id) USING (tenant_id, variant_id)
ORDER BY s.tenant_id, s.variant_id
FOR NO KEY UPDATE OF s`

const lockUnlockedSQL = lockSQL + `
SKIP LOCKED`

// lockTx locks the stock rows of the refs, which must be distinct, in (tenant,
// variant) order, returns those that exist as they are under the lock, and then
// reads the database's clock. Until the transaction ends, no other transaction
// can make, commit, release or expire a hold on these variants.
//
// first adds statements before the lock.
func lockTx(ctx context.Context, tx pgx.Tx, refs []Ref, first ...func(*pgx.Batch)) (map[Ref]*counter, time.Time, error) {
	return lockBy(ctx, tx, lockSQL, refs, nil, first...)
}

// lockUnlockedTx is lockTx without waiting: it leaves out stocks that another
// transaction has locked.
func lockUnlockedTx(ctx context.Context, tx pgx.Tx, refs []Ref, first ...func(*pgx.Batch)) (map[Ref]*counter, time.Time, error) {
	return lockBy(ctx, tx, lockUnlockedSQL, refs, nil, first...)
}

const existingSQL = `
SELECT s.tenant_id, s.variant_id
FROM inventory_stocks s
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id) USING (tenant_id, variant_id)`

// withLockedStock returns those of the refs that have a stock but no counter,
// because another transaction has the stock locked.
func withLockedStock(ctx context.Context, tx pgx.Tx, refs []Ref, counters map[Ref]*counter) (map[Ref]bool, error) {
	var tenants [][16]byte
	var variants []string
	for _, ref := range refs {
		if counters[ref] == nil {
			tenants, variants = append(tenants, ref.TenantID), append(variants, ref.VariantID)
		}
	}
	rows, err := tx.Query(ctx, existingSQL, tenants, variants)
	if err != nil {
		return nil, fmt.Errorf("read %d stocks: %w", len(variants), err)
	}
	existing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Ref])
	if err != nil {
		return nil, fmt.Errorf("read %d stocks: %w", len(variants), err)
	}
	locked := make(map[Ref]bool, len(existing))
	for _, ref := range existing {
		locked[ref] = true
	}
	return locked, nil
}

// lockBy locks the stocks with sql. then, if not nil, adds statements between
// the lock and the reading of the clock.
func lockBy(ctx context.Context, tx pgx.Tx, sql string, refs []Ref, then func(*pgx.Batch), first ...func(*pgx.Batch)) (map[Ref]*counter, time.Time, error) {
	b := &pgx.Batch{}
	for _, queue := range first {
		queue(b)
	}
	var locked stocks
	locked.queue(b, sql, refs, then)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, time.Time{}, fmt.Errorf("lock %d stocks: %w", len(refs), err)
	}
	return locked.counters, locked.now, nil
}

// stocks are stock rows under their locks, and a reading of the database's
// clock after the lock.
type stocks struct {
	counters map[Ref]*counter
	now      time.Time
}

// queue adds to b what locks the stocks of the refs with sql, then the
// statements of then, if it is not nil.
func (s *stocks) queue(b *pgx.Batch, sql string, refs []Ref, then func(*pgx.Batch)) {
	tenants, variants := make([][16]byte, len(refs)), make([]string, len(refs))
	for i, ref := range refs {
		tenants[i], variants[i] = ref.TenantID, ref.VariantID
	}
	s.counters = make(map[Ref]*counter, len(refs))
	b.Queue(sql, tenants, variants).Query(func(rows pgx.Rows) error {
		locked, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[counter])
		for _, c := range locked {
			s.counters[Ref{c.TenantID, c.VariantID}] = c
		}
		return err
	})
	if then != nil {
		then(b)
	}
	pg.QueueClock(b, &s.now)
}
