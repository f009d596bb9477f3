package inventory

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// query is a statement with its arguments.
type query struct {
	sql  string
	args []any
}

// execAll runs the statements one after the other.
func execAll(t *testing.T, db *pgxpool.Pool, queries ...query) {
	t.Helper()
	for _, q := range queries {
		if _, err := db.Exec(t.Context(), q.sql, q.args...); err != nil {
			t.Fatal(err)
		}
	}
}

// plansOf returns the plans of the statements that read stocks: of the first
// variant, of a page, and of the variants. explain is the EXPLAIN clause.
func plansOf(t *testing.T, db *pgxpool.Pool, explain string, tenant uuid.UUID, variants ...string) map[string][]string {
	t.Helper()
	byName := make(map[string][]string)
	for name, read := range map[string]query{
		"get":  {getSQL, []any{tenant, variants[0]}},
		"list": {listSQL, []any{"", DefaultPage, tenant}},
		"read": {readSQL, []any{tenant, variants}},
	} {
		rows, err := db.Query(t.Context(), explain+" "+read.sql, read.args...)
		if err != nil {
			t.Fatal(err)
		}
		byName[name], err = pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
	}
	return byName
}

// One variant has all the holds, and many of them are due. A page of stocks
// must not read them once per row.
func TestDueHoldsAreReadByVariant(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	execAll(t, db,
		query{`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || n, 1 FROM generate_series(1, 5000) AS n`, []any{tenant}},
		query{`
		INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, 'v1', 'cart', 1, at, at, at + n % 2 * interval '1 day'
		FROM generate_series(1, 10000) AS n, (SELECT clock_timestamp() - interval '1 minute' AS at) AS t`, []any{tenant, Kind}},
		query{`ANALYZE inventory_stocks, reservations`, nil},
	)
	for name, lines := range plansOf(t, db, "EXPLAIN", tenant, "v2", "v3") {
		if plan := strings.Join(lines, "\n"); !strings.Contains(plan, "reservations_resource_idx") {
			t.Errorf("%s: plan\n%s", name, plan)
		}
	}
}

// A read of a stock, of a page of stocks, and an edit each read a bounded
// number of due holds, however many there are.
func TestReadingAStockIsBounded(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	execAll(t, db,
		query{`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, reserved) VALUES ($1, 'v1', 50000, 20000), ($1, 'v2', 10, 3)`, []any{tenant}},
		query{`
		INSERT INTO reservations
			(tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $2, CASE WHEN n <= 3 THEN 'v2' ELSE 'v1' END, 'cart', 1, at, at, at
		FROM generate_series(1, 20003) AS n, (SELECT clock_timestamp() - interval '1 minute' AS at) AS t`, []any{tenant, Kind}},
	)
	for _, known := range []string{"before it is analysed", "once it is analysed"} {
		for variant, want := range map[string]int64{"v1": 50_000 - 20_000 + DueMax, "v2": 10} {
			s, err := Get(t.Context(), db, tenant, variant)
			if err != nil || s.Available != want {
				t.Errorf("%s: available of %s is %d (%v), want %d", known, variant, s.Available, err, want)
			}
		}
		for name, plan := range plansOf(t, db, "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF)", tenant, "v1", "v2") {
			if n := rowsOf(plan, "on reservations"); n < DueMax || n > DueMax+10 { // rows of a node with several loops are rounded
				t.Errorf("%s, %s: %.0f due holds are read:\n%s", known, name, n, strings.Join(plan, "\n"))
			}
		}
		execAll(t, db, query{`VACUUM (ANALYZE) reservations, inventory_stocks`, nil})
	}
}

// rowsOf returns the sum of the rows returned and filtered by the nodes of a
// plan whose line contains the text.
func rowsOf(plan []string, text string) (total float64) {
	counted := 0.
	for _, line := range plan {
		var rows, loops, removed float64
		_, actual, isNode := strings.Cut(line, "(actual ")
		if isNode {
			counted = 0
		}
		if isNode && strings.Contains(line, text) {
			if _, err := fmt.Sscanf(actual, "rows=%g loops=%g", &rows, &loops); err == nil {
				counted = loops
				total += rows * loops
			}
		}
		if _, filtered, ok := strings.Cut(line, "Rows Removed by Filter: "); ok {
			if _, err := fmt.Sscanf(filtered, "%g", &removed); err == nil {
				total += removed * counted
			}
		}
	}
	return total
}

// The variants of a group are read by primary key, even if very many of them
// have required a token since the last ANALYZE.
func TestTokenRequiredIsLookedUp(t *testing.T) {
	t.Parallel()
	config := pgtest.New(t).Config()
	pg.ForceGenericPlans(config)
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	execAll(t, db,
		query{`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || n, 1 FROM generate_series(1, 20000) AS n`, []any{uuid.Nil}},
		query{`ANALYZE inventory_stocks`, nil},
		query{`UPDATE inventory_stocks SET admission = 'token' WHERE variant_id LIKE 'v1%'`, nil},
	)
	tenants, variants := make([]string, 100), make([]string, 100)
	for i := range variants {
		tenants[i], variants[i] = uuid.Nil.String(), fmt.Sprint("v2", i)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, sql := range []string{`SET LOCAL plan_cache_mode = force_generic_plan`, `PREPARE explained AS ` + tokenRequiredSQL} {
		if _, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := tx.Query(t.Context(), `EXPLAIN (ANALYZE, TIMING OFF) EXECUTE explained ('{`+strings.Join(tenants, ",")+`}', '{`+strings.Join(variants, ",")+`}')`,
		pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	lookup := regexp.MustCompile(`inventory_stocks_pkey on inventory_stocks .*loops=100\b`)
	if !lookup.MatchString(plan) || strings.Contains(plan, "guarded_idx") {
		t.Errorf("100 variants are not read by primary key:\n%s", plan)
	}
}
