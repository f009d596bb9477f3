package hot

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// A pass reads the newest requests, and other rows by key. It does so however
// many requests are queued or finished, and however many variants exist or are
// hot.
func TestCandidatesAreBounded(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	for _, fill := range []string{
		`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || n, 1 FROM generate_series(1, 20000) AS n`,
		`INSERT INTO hot_variants (tenant_id, variant_id, slot, pinned) SELECT $1, 'v' || n, 3, true FROM generate_series(1, 3000) AS n`,
		`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, status)
		 SELECT $1, gen_random_uuid(), 'normal', 'cart' || n, 'v' || n, 1, 'done' FROM generate_series(1, 20000) AS n`,
		`INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
		 SELECT $1, gen_random_uuid(), 'normal', 'cart' || n, 'v' || n % 40, 1 FROM generate_series(1, 20000) AS n`,
		`INSERT INTO hot_signals (tenant_id, variant_id, source, rate)
		 SELECT $1, 'v' || n % 60, md5(n::text)::uuid, n FROM generate_series(1, 2000) AS n`,
	} {
		if _, err := db.Exec(t.Context(), fill, tenant); err != nil {
			t.Fatal(err)
		}
	}
	for _, known := range []string{"before the tables are analysed", "once they are analysed"} {
		plan := explainCandidates(t, db)
		read := 0
		for _, found := range regexp.MustCompile(`on reservation_requests .*actual.* rows=(\d+)`).FindAllStringSubmatch(plan, -1) {
			n, err := strconv.Atoi(found[1])
			if err != nil {
				t.Fatal(err)
			}
			read += n
		}
		if read == 0 || read > scanMax || strings.Contains(plan, "Seq Scan on inventory_stocks") {
			t.Errorf("%s a pass reads %d requests:\n%s", known, read, plan)
		}
		if _, err := db.Exec(t.Context(), `ANALYZE`); err != nil {
			t.Fatal(err)
		}
	}
}

func explainCandidates(t *testing.T, db *pgxpool.Pool) string {
	t.Helper()
	rows, err := db.Query(t.Context(), `EXPLAIN (ANALYZE, TIMING OFF) `+candidatesSQL, int64(20_000), scanMax, time.Hour, waitingMin, candidatesMax)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
