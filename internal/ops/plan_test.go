package ops

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// The latest failed requests are read from the tenant's newest requests, within
// a bound, and their retries by an index.
func TestLatestFailedReadsWithinItsBound(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	pgtest.Exec(t, db, `
		INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, status)
		SELECT $1, lpad(to_hex(n), 32, '0')::uuid, 'normal', 'cart' || n, 'v', 1, 'done' FROM generate_series(1, 20000) AS n`, tenant)
	for _, known := range []string{"before the table is analysed", "once it is analysed"} {
		plan := explain(t, db, "force_custom_plan", latestFailedSQL, "'"+tenant.String()+"'", strconv.Itoa(FailedScanMax), "20")
		if rows := actual(plan, `reservation_requests_pkey on reservation_requests newest .*actual rows=(\d+)`); rows != FailedScanMax {
			t.Errorf("%s it reads %d requests to find no failed one:\n%s", known, rows, plan)
		}
		pgtest.Exec(t, db, `VACUUM (ANALYZE) reservation_requests`)
	}
	pgtest.Exec(t, db, `UPDATE reservation_requests SET status = 'failed', reason = 'out_of_stock' WHERE request_id > lpad(to_hex(19900), 32, '0')::uuid`)
	plan := explain(t, db, "force_custom_plan", latestFailedSQL, "'"+tenant.String()+"'", strconv.Itoa(FailedScanMax), "20")
	rows := actual(plan, `reservation_requests_pkey on reservation_requests newest .*actual rows=(\d+)`)
	retries := actual(plan, `reservation_requests_retry_idx on reservation_requests retry .*loops=(\d+)`)
	if rows != FailedScanMax || retries != 20 {
		t.Errorf("it reads %d requests and the retries of %d to find 20 failed ones:\n%s", rows, retries, plan)
	}
}

// actual returns the number in the line of the plan that the pattern matches,
// -1 if no line does.
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

// explain runs a prepared statement with the given literals, rolls it back, and
// returns its plan.
func explain(t *testing.T, db *pgxpool.Pool, mode, sql string, literals ...string) string {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, prepare := range []string{`SET LOCAL plan_cache_mode = ` + mode, `SET LOCAL enable_sort = off`, `PREPARE explained AS ` + sql} {
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

// The targets of a cart and of a variant are read by indexes, and of a large
// tenant only the newest rows are read.
func TestTargetsReadTheNewest(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	for _, fill := range []string{
		`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, status, reason)
		 SELECT $1, gen_random_uuid(), 'normal', 'cart' || n % 5000, 'v' || n % 10, 1, 'failed', 'out_of_stock' FROM generate_series(1, 20000) AS n`,
		`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status, first_held_at, held_at, expires_at, ended_at)
		 SELECT $1, gen_random_uuid(), 'inventory.variant', 'v' || n % 10, 'cart' || n % 5000, 1,
		        CASE WHEN n % 2 = 0 THEN 'held' ELSE 'committed' END, now(), now(), now() + n * interval '1 s', CASE WHEN n % 2 = 1 THEN now() END
		 FROM generate_series(1, 20000) AS n`,
	} {
		if _, err := db.Exec(t.Context(), fill, tenant); err != nil {
			t.Fatal(err)
		}
	}
	id := "'" + tenant.String() + "'"
	for _, known := range []string{"before the tables are analysed", "once they are analysed"} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			cart := explain(t, db, mode, cartTargetsSQL, id, "'cart7'", "50")
			variant := explain(t, db, mode, variantTargetsSQL, id, "'none'", "50", "5000")
			for _, plan := range []string{cart, variant} {
				if strings.Contains(plan, "Seq Scan") {
					t.Errorf("%s (%s) a table is read whole:\n%s", known, mode, plan)
				}
			}
			for _, index := range []string{"reservations_pkey", "reservation_requests_pkey"} {
				if rows := actual(variant, `Backward using `+index+` on .*actual rows=(\d+)`); rows != newestMax {
					t.Errorf("%s (%s) %d rows are read by %s, want %d:\n%s", known, mode, rows, index, newestMax, variant)
				}
			}
		}
		if _, err := db.Exec(t.Context(), `ANALYZE reservations, reservation_requests`); err != nil {
			t.Fatal(err)
		}
	}
}
