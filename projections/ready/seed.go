package ready

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/projections"
)

// seedBatch is how many stocks are locked at a time.
const seedBatch = 200

const stockColumns = `s.tenant_id, s.variant_id, s.stock, s.reserved, s.tracked, s.backorder`

// missingSQL skips the stocks that another transaction has locked: this
// transaction has other stocks locked. lockedSQL waits for them, one at a time.
const missingSQL = `
SELECT ` + stockColumns + missing + `
LIMIT $3
FOR NO KEY UPDATE OF s SKIP LOCKED`

const lockedSQL = `
SELECT ` + stockColumns + missing + `
LIMIT $3
FOR NO KEY UPDATE OF s`

const missing = `
FROM inventory_stocks s
WHERE (s.tenant_id, s.variant_id) > ($1, $2)
  AND NOT EXISTS (
      SELECT
      FROM projection_snapshots p
      WHERE p.tenant_id = s.tenant_id AND p.projection_name = 'stocks.availability' AND p.key = s.variant_id)
ORDER BY s.tenant_id, s.variant_id`

const afterSQL = `
SELECT ` + stockColumns + `
FROM inventory_stocks s
WHERE (s.tenant_id, s.variant_id) > ($1, $2)
ORDER BY s.tenant_id, s.variant_id
LIMIT $3`

const oneSQL = `
SELECT ` + stockColumns + `
FROM inventory_stocks s
WHERE s.tenant_id = $1 AND s.variant_id = $2
FOR NO KEY UPDATE`

const lastDrawnSQL = `SELECT ` + horizon.Drawn + ` FROM audit_log_audit_id_seq`

// SeedMissing gives each stock without a state of availability the state that
// its row has, and returns how many there were. Call it before a feed runs for
// the first time on a database whose oldest records may be pruned. Several
// processes may call it at once.
//
// It locks stocks, then states.
func (s *Set) SeedMissing(ctx context.Context) (seeded int, err error) {
	for _, pass := range []struct {
		sql   string
		limit int
	}{{missingSQL, seedBatch}, {lockedSQL, 1}} {
		var last projections.Key
		for {
			found, err := s.seedNext(ctx, pass.sql, last.TenantID, last.Key, pass.limit)
			if err != nil {
				return seeded, err
			}
			if len(found) == 0 {
				break
			}
			seeded += len(found)
			last = found[len(found)-1]
		}
	}
	return seeded, nil
}

// Reseed replaces the states of availability of all stocks, or of one, by what
// their rows have. It returns how many there were.
func (s *Set) Reseed(ctx context.Context, only *projections.Key) (seeded int, err error) {
	if only != nil {
		found, err := s.seedNext(ctx, oneSQL, only.TenantID, only.Key)
		return len(found), err
	}
	var last projections.Key
	for {
		page, err := s.readStocks(ctx, s.db, afterSQL, last.TenantID, last.Key, seedBatch)
		if err != nil || len(page) == 0 {
			return seeded, err
		}
		for i := range page {
			last = page[i].Key
			if _, err := s.seedNext(ctx, oneSQL, last.TenantID, last.Key); err != nil {
				return seeded, err
			}
			seeded++
		}
	}
}

// seedNext locks the stocks that the query returns and seeds their states. The
// records that their writers have written are below the last audit id that is
// drawn once the locks are taken.
func (s *Set) seedNext(ctx context.Context, sql string, args ...any) (found []projections.Key, err error) {
	var change projections.Change
	err = pgx.BeginTxFunc(ctx, s.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		seeds, err := s.readStocks(ctx, tx, sql, args...)
		if err != nil || len(seeds) == 0 {
			return err
		}
		for i := range seeds {
			found = append(found, seeds[i].Key)
		}
		var position int64
		if err := tx.QueryRow(ctx, lastDrawnSQL).Scan(&position); err != nil {
			return err
		}
		change, err = s.Availability.SeedTx(ctx, tx, seeds, position)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("seed the availability of stocks: %w", err)
	}
	_ = s.Availability.Broadcast(ctx, change) // logged; clients read the state
	return found, nil
}

// querier reads rows.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (s *Set) readStocks(ctx context.Context, db querier, sql string, args ...any) ([]projections.Seed[Availability], error) {
	rows, _ := db.Query(ctx, sql, args...)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (seed projections.Seed[Availability], err error) {
		var tenantID uuid.UUID
		var a Availability
		err = row.Scan((*[16]byte)(&tenantID), &a.VariantID, &a.Stock, &a.Reserved, &a.Tracked, &a.Backorder)
		a.Available = a.Stock - a.Reserved
		return projections.Seed[Availability]{Key: projections.Key{TenantID: tenantID, Key: a.VariantID}, State: a}, err
	})
}
