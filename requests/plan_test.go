package requests

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/plans"
)

// A claim walks its stream from the mark and stops when it has enough, whatever the tenants' history, however many variants
// are hot and however much of the stream is one cart's.
func TestClaimsReadWhatTheyTake(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	for _, fill := range []string{
		`INSERT INTO hot_variants (tenant_id, variant_id, slot) SELECT $1, 'hot' || n, 3 FROM generate_series(1, 3000) AS n`,
		`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, status)
		 SELECT $1, gen_random_uuid(), 'normal', 'cart' || n, 'v' || n, 1, 'done' FROM generate_series(1, 20000) AS n`,
		`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
		 SELECT $1, gen_random_uuid(), 'normal', 'large', 'v' || n, 1 FROM generate_series(1, 6000) AS n`,
	} {
		if _, err := db.Exec(t.Context(), fill, tenant); err != nil {
			t.Fatal(err)
		}
	}
	const mark, limit = "20000", "100"
	for _, known := range []string{"before the tables are analysed", "once they are analysed"} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			plan := explain(t, db, mode, claimNormalSQL, mark, limit, "0", mark, "NULL", "NULL")
			if rows := actual(plan, `reservation_requests_stream_idx on reservation_requests .*actual rows=(\d+)`); rows != 100 {
				t.Errorf("%s (%s) a claim of 100 walks over %d:\n%s", known, mode, rows, plan)
			}
			if loops := actual(plan, `reservation_requests_cart_idx on reservation_requests .*loops=(\d+)`); loops != 1 {
				t.Errorf("%s (%s) a claim reads its one cart %d times:\n%s", known, mode, loops, plan)
			}
			plan = explain(t, db, mode, claimMovingSQL, "3", "0", limit, "NULL")
			if strings.Contains(plan, "Bitmap Index Scan on reservation_requests_pkey") {
				t.Errorf("%s (%s) a claim reads all that a tenant asked for:\n%s", known, mode, plan)
			}
		}
		if _, err := db.Exec(t.Context(), `ANALYZE hot_variants, reservation_requests`); err != nil {
			t.Fatal(err)
		}
	}
}

// The variants of a group are looked up one by one, also where very many require a token since the planner last counted.
func TestGuardedIsLookedUp(t *testing.T) {
	t.Parallel()
	config := pgtest.New(t).Config()
	plans.Keep(config)
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	for _, fill := range []string{
		`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT '` + uuid.Nil.String() + `', 'v' || n, 1 FROM generate_series(1, 20000) AS n`,
		`ANALYZE inventory_stocks`,
		`UPDATE inventory_stocks SET admission = 'token' WHERE variant_id LIKE 'v1%'`,
	} {
		if _, err := db.Exec(t.Context(), fill); err != nil {
			t.Fatal(err)
		}
	}
	tenants, variants := make([]string, 100), make([]string, 100)
	for i := range variants {
		tenants[i], variants[i] = uuid.Nil.String(), "v2"+strconv.Itoa(i)
	}
	plan := explain(t, db, "force_generic_plan", guardedSQL, "'{"+strings.Join(tenants, ",")+"}'", "'{"+strings.Join(variants, ",")+"}'")
	if loops := actual(plan, `inventory_stocks_pkey on inventory_stocks .*loops=(\d+)`); loops != 100 || strings.Contains(plan, "guarded_idx") {
		t.Errorf("100 variants are not looked up one by one:\n%s", plan)
	}
}

// actual is the number in the one line of the plan that the pattern matches, -1 if none does.
func actual(plan, pattern string) int {
	found := regexp.MustCompile(pattern).FindStringSubmatch(plan)
	if found == nil {
		return -1
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		return -1
	}
	return n
}

// explain runs a prepared statement with the given literals and returns its plan; what it did is rolled back.
func explain(t *testing.T, db *pgxpool.Pool, mode, sql string, literals ...string) string {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, prepare := range []string{`SET LOCAL plan_cache_mode = ` + mode, `PREPARE explained AS ` + sql} {
		if _, err := tx.Exec(t.Context(), prepare, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := tx.Query(t.Context(), `EXPLAIN (ANALYZE, TIMING OFF) EXECUTE explained (`+strings.Join(literals, ", ")+`)`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `DEALLOCATE explained`); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
