package inventory

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A row's xmax is the last transaction that locked it. The row is free if it
// can be locked now. FOR SHARE, so that two such queries do not see each
// other's locks.
const (
	lockOwnersSQL = `
SELECT s.tenant_id, s.variant_id, s.xmax::text
FROM inventory_stocks s
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id) USING (tenant_id, variant_id)`

	freeStocksSQL = `
SELECT s.tenant_id, s.variant_id, ''
FROM inventory_stocks s
JOIN unnest($1::uuid[], $2::text[]) AS wanted (tenant_id, variant_id) USING (tenant_id, variant_id)
FOR SHARE OF s SKIP LOCKED`
)

// LockOwners returns, for the stocks of the refs that other transactions have
// locked, a text that names the transaction. A stock that is free, or does not
// exist, is not in the map. LockOwners waits for no lock.
func LockOwners(ctx context.Context, db *pgxpool.Pool, refs []Ref) (map[Ref]string, error) {
	tenants, variants := make([][16]byte, len(refs)), make([]string, len(refs))
	for i, ref := range refs {
		tenants[i], variants[i] = ref.TenantID, ref.VariantID
	}
	owners := make(map[Ref]string, len(refs))
	read := func(rows pgx.Rows) error {
		var ref Ref
		var owner string
		_, err := pgx.ForEachRow(rows, []any{&ref.TenantID, &ref.VariantID, &owner}, func() error {
			if owner == "" {
				delete(owners, ref)
			} else {
				owners[ref] = owner
			}
			return nil
		})
		return err
	}
	b := &pgx.Batch{}
	b.Queue(lockOwnersSQL, tenants, variants).Query(read)
	b.Queue(freeStocksSQL, tenants, variants).Query(read)
	if err := db.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read who has locked %d stocks: %w", len(refs), err)
	}
	return owners, nil
}
