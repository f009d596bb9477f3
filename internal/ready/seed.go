package ready

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/projections"
)

// seedBatch is how many stocks are locked at a time.
const seedBatch = 200

const stockColumns = `s.tenant_id, s.variant_id, s.stock, s.reserved, s.tracked, s.backorder, coalesce(s.preorder_max, 0)`

// pageSQL pages through the stocks, and reports which of them have no state.
const pageSQL = `
WITH page AS MATERIALIZED (
    SELECT s.tenant_id, s.variant_id
    FROM inventory_stocks s
    WHERE (s.tenant_id, s.variant_id) > ($1, $2)
    ORDER BY s.tenant_id, s.variant_id
    LIMIT $3
)
SELECT page.tenant_id, page.variant_id, p.key IS NULL
FROM page
LEFT JOIN projection_snapshots p
    ON p.tenant_id = page.tenant_id AND p.projection_name = 'stocks.availability' AND p.key = page.variant_id
ORDER BY page.tenant_id, page.variant_id
LIMIT $3`

// freeSQL skips the stocks that another transaction has locked: this transaction
// has other stocks locked. They are taken one at a time afterwards.
const freeSQL = `
SELECT ` + stockColumns + `
FROM unnest($1::uuid[], $2::text[]) AS k (tenant_id, variant_id)
JOIN inventory_stocks s ON s.tenant_id = k.tenant_id AND s.variant_id = k.variant_id
ORDER BY s.tenant_id, s.variant_id
LIMIT $3
FOR NO KEY UPDATE OF s SKIP LOCKED`

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
	return s.seed(ctx, false, func(int) {})
}

// Reseed replaces the states of availability of all stocks by what their rows
// have. It returns how many there were. It calls done with the number of those
// that are replaced, after each 200; done may be nil.
//
// It locks stocks, then states, 200 at a time.
func (s *Set) Reseed(ctx context.Context, done func(seeded int)) (seeded int, err error) {
	if done == nil {
		done = func(int) {}
	}
	return s.seed(ctx, true, done)
}

// ReseedOne is Reseed for one stock. It returns 0 if there is no such stock.
func (s *Set) ReseedOne(ctx context.Context, key projections.Key) (seeded int, err error) {
	found, err := s.seedOne(ctx, key)
	return len(found), err
}

// seed seeds the states of all stocks, or of those that have none.
func (s *Set) seed(ctx context.Context, all bool, done func(int)) (seeded int, err error) {
	var last projections.Key
	for {
		page, next, err := s.page(ctx, last, all)
		if err != nil || next == last {
			return seeded, err
		}
		last = next
		for keys := range slices.Chunk(page, seedBatch) {
			if err := s.seedAll(ctx, keys); err != nil {
				return seeded, err
			}
			seeded += len(keys)
			done(seeded)
		}
	}
}

const stocksSQL = `SELECT count(*) FROM inventory_stocks`

// Stocks returns how many stocks there are, to compare with the progress of
// Reseed. It reads the whole table.
func (s *Set) Stocks(ctx context.Context) (n int64, err error) {
	if err := s.db.QueryRow(ctx, stocksSQL).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the stocks: %w", err)
	}
	return n, nil
}

// stocksPage is how many stocks are read at a time.
const stocksPage = 5000

// page returns the stocks that follow a key, or those of them without a state,
// and the last of those that were read.
func (s *Set) page(ctx context.Context, after projections.Key, all bool) (keys []projections.Key, last projections.Key, err error) {
	rows, _ := s.db.Query(ctx, pageSQL, after.TenantID, after.Key, stocksPage) //nolint:rowserrcheck // ForEachRow checks it
	last = after
	var missing bool
	_, err = pgx.ForEachRow(rows, []any{(*[16]byte)(&last.TenantID), &last.Key, &missing}, func() error {
		if all || missing {
			keys = append(keys, last)
		}
		return nil
	})
	if err != nil {
		return nil, last, fmt.Errorf("read the keys of stocks: %w", err)
	}
	return keys, last, nil
}

// seedAll seeds the states of the stocks: of those that no other transaction has
// locked at once, then of the others one by one.
func (s *Set) seedAll(ctx context.Context, keys []projections.Key) error {
	tenants, variants := make([][16]byte, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		tenants[i], variants[i] = key.TenantID, key.Key
	}
	found, err := s.seedNext(ctx, freeSQL, tenants, variants, len(keys))
	if err != nil && !pg.IsLockTimeout(err) {
		return err
	}
	done := make(map[projections.Key]bool, len(found))
	for _, key := range found {
		done[key] = true
	}
	for _, key := range keys {
		if done[key] {
			continue
		}
		if _, err := s.seedOne(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

const (
	// seedLockTimeoutSQL bounds how long the stocks of a transaction stay locked
	// while it waits for the rows of their states.
	seedLockTimeoutSQL = `SELECT set_config('lock_timeout', '1s', true)`
	// seedTries is how often one stock is tried.
	seedTries = 60
)

// seedOne seeds the state of one stock, for which it waits.
func (s *Set) seedOne(ctx context.Context, key projections.Key) (found []projections.Key, err error) {
	for range seedTries {
		found, err = s.seedNext(ctx, oneSQL, key.TenantID, key.Key)
		if !pg.IsLockTimeout(err) {
			break
		}
	}
	return found, err
}

// seedNext locks the stocks that the query returns and seeds their states. The
// records that their writers have written are below the last audit id that is
// drawn once the locks are taken.
func (s *Set) seedNext(ctx context.Context, sql string, args ...any) (found []projections.Key, err error) {
	var change projections.Change
	err = pgx.BeginTxFunc(ctx, s.db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		pg.QueueLookUp(b)
		b.Queue(seedLockTimeoutSQL)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		stocks, err := s.readStocks(ctx, tx, sql, args...)
		if err != nil || len(stocks) == 0 {
			return err
		}
		states := make(map[projections.Key]Availability, len(stocks))
		for _, stock := range stocks {
			found = append(found, stock.Key)
			states[stock.Key] = stock.Availability
		}
		var position int64
		if err := tx.QueryRow(ctx, lastDrawnSQL).Scan(&position); err != nil {
			return err
		}
		change, err = s.Availability.SeedTx(ctx, tx, states, position)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("seed the availability of stocks: %w", err)
	}
	_ = s.Availability.Broadcast(ctx, change) // logged; clients read the state
	return found, nil
}

// stockRow is the row of a stock.
type stockRow struct {
	projections.Key
	Availability
}

func (s *Set) readStocks(ctx context.Context, db audit.Querier, sql string, args ...any) ([]stockRow, error) {
	rows, _ := db.Query(ctx, sql, args...)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (k stockRow, err error) {
		err = row.Scan((*[16]byte)(&k.TenantID), &k.VariantID, &k.Stock, &k.Reserved, &k.Tracked, &k.Backorder, &k.PreorderMax)
		k.Key.Key, k.Available = k.VariantID, k.Stock+k.PreorderMax-k.Reserved
		return k, err
	})
}
