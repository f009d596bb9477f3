package requestrows

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

// A claim reads its stream from the low-water mark and stops when it has enough
// rows, whatever the tenants' history, the number of hot variants, or the share
// of one cart in the stream.
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
			plan := explain(t, db, mode, claimNormalSQL, mark, limit, "0", "NULL", mark, "NULL", "'normal'")
			if rows := actual(plan, `reservation_requests_stream_idx on reservation_requests .*actual rows=(\d+)`); rows != 100 {
				t.Errorf("%s (%s) a claim of 100 reads %d rows:\n%s", known, mode, rows, plan)
			}
			if loops := actual(plan, `reservation_requests_cart_idx on reservation_requests .*loops=(\d+)`); loops != 1 {
				t.Errorf("%s (%s) a claim reads its one cart %d times:\n%s", known, mode, loops, plan)
			}
			plan = explain(t, db, mode, claimMovingSQL, "3", "0", limit, "NULL")
			if strings.Contains(plan, "Bitmap Index Scan on reservation_requests_pkey") {
				t.Errorf("%s (%s) a claim reads all requests of a tenant:\n%s", known, mode, plan)
			}
		}
		if _, err := db.Exec(t.Context(), `ANALYZE hot_variants, reservation_requests`); err != nil {
			t.Fatal(err)
		}
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

// The insert of a group for one variant looks up the variant's stream and stock
// once, however many requests there are, and sorts nothing.
func TestInsertLooksUpItsVariantOnce(t *testing.T) {
	t.Parallel()
	db, group := pgtest.New(t), make([]Submission, 32)
	tenant := uuid.New()
	for i := range group {
		group[i] = Submission{TenantID: tenant, RequestID: NewID(), CartID: NewID().String(), VariantID: "shoe", Quantity: 1}
	}
	for _, fill := range []string{
		`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || n, 1 FROM generate_series(1, 1000) AS n`,
		`INSERT INTO hot_variants (tenant_id, variant_id, slot) SELECT $1, 'v' || n, 3 FROM generate_series(1, 1000) AS n`,
		`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, 'shoe', 100)`,
	} {
		if _, err := db.Exec(t.Context(), fill, tenant); err != nil {
			t.Fatal(err)
		}
	}
	g, b := newInsertGroup(Insertion{Group: group}), &pgx.Batch{}
	g.queueInsert(b, true, nil)
	rows, err := db.Query(t.Context(), `EXPLAIN (ANALYZE, TIMING OFF) `+b.QueuedQueries[0].SQL, b.QueuedQueries[0].Arguments...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	for _, table := range []string{"inventory_stocks", "hot_variants"} {
		if loops := actual(plan, ` on `+table+` .*actual .*loops=(\d+)`); loops != 1 {
			t.Errorf("%s is read %d times, want once:\n%s", table, loops, plan)
		}
	}
	if inserted := actual(plan, `Insert on .*actual rows=(\d+)`); inserted != 32 || strings.Contains(plan, "Sort") {
		t.Errorf("%d rows are inserted, want 32 without a sort:\n%s", inserted, plan)
	}
}
