package tenants_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/tenants"
)

// Keys created after the transaction's first statement count, whatever its
// isolation level.
func TestCreateKeyTxCountsAll(t *testing.T) {
	t.Parallel()
	for level, want := range map[pgx.TxIsoLevel]error{
		pgx.ReadCommitted: tenants.ErrTooManyKeys, pgx.RepeatableRead: tenants.ErrIsolation, pgx.Serializable: tenants.ErrIsolation,
	} {
		b := newFixture(t)
		err := pgx.BeginTxFunc(t.Context(), b.DB, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil {
				return err
			}
			_, err := b.DB.Exec(t.Context(), `
				INSERT INTO api_keys (tenant_id, key_id, name, prefix, hash, scopes)
				SELECT $1, gen_random_uuid(), 'n', 'hf_', decode(md5(n::text), 'hex'), '{cart}'
				FROM generate_series(1, $2::int) AS n`, b.tenant.TenantID, tenants.MaxKeys)
			if err != nil {
				return err
			}
			_, _, err = tenants.CreateKeyTx(t.Context(), tx, b.tenant.TenantID, "one too many", []tenants.Scope{tenants.ScopeCart})
			return err
		})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", level, err, want)
		}
	}
}
