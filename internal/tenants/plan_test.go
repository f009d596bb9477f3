package tenants

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// A purge reads the keys that it deletes, however many others there are.
func TestPurgePlans(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	pgtest.Exec(t, db, `
		INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint, status_code, kept_with)
		SELECT $1, n, '', 200, CASE WHEN n % 2 = 0 THEN gen_random_uuid() END
		FROM generate_series(1, 20000) AS n`, tenant)
	gone := make([][16]byte, 200)
	tenants := make([][16]byte, len(gone))
	for i := range gone {
		gone[i], tenants[i] = uuid.New(), tenant
	}
	for _, known := range []string{"before the table is analysed", "once it is analysed"} {
		for _, c := range []struct {
			sql, index string
			args       []any
		}{
			{purgeKeysSQL, "idempotency_keys_created_idx", []any{"1 hour", 100}},
			{deleteKeysSQL, "idempotency_keys_kept_idx", []any{tenants, gone}},
		} {
			rows, err := db.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF) `+c.sql, c.args...)
			pgtest.Must(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			pgtest.Must(t, err)
			plan := strings.Join(lines, "\n")
			if !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan on idempotency_keys") {
				t.Errorf("%s: want %s\n%s", known, c.index, plan)
			}
		}
		pgtest.Exec(t, db, `ANALYZE idempotency_keys`)
	}
}
