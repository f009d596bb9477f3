package inventory

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// One variant has all the holds and many of them are due: a page of stocks must not read them once a row.
func TestDueHoldsAreReadByVariant(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	for _, fill := range []struct {
		sql  string
		args []any
	}{
		{`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || n, 1 FROM generate_series(1, 5000) AS n`, []any{tenant}},
		{`
		INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'v1', 'cart', 1, at, at, at + n % 2 * interval '1 day'
		FROM generate_series(1, 10000) AS n, (SELECT clock_timestamp() - interval '1 minute' AS at) AS t`, []any{tenant, Kind}},
		{`ANALYZE inventory_stocks, reservations`, nil},
	} {
		if _, err := db.Exec(t.Context(), fill.sql, fill.args...); err != nil {
			t.Fatal(err)
		}
	}
	for name, read := range map[string]struct {
		sql  string
		args []any
	}{
		"get":  {getSQL, []any{tenant, "v2"}},
		"list": {listSQL, []any{tenant, "", DefaultPage}},
		"read": {readSQL, []any{tenant, []string{"v2", "v3"}}},
	} {
		rows, err := db.Query(t.Context(), "EXPLAIN "+read.sql, read.args...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if plan := strings.Join(lines, "\n"); err != nil || !strings.Contains(plan, "reservations_held_idx") {
			t.Errorf("%s: error %v, plan\n%s", name, err, plan)
		}
	}
}
