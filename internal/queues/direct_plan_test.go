package queues

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

var readRequests = regexp.MustCompile(`on reservation_requests .*actual rows=(\d+) loops=(\d+)`)

// The check of a group reads few requests, whatever is queued in its stream or
// in another one, also by plans that were made while the table was empty.
func TestCheckOfDirectDecisionReadsLittle(t *testing.T) {
	t.Parallel()
	const group = 32
	config := pgtest.New(t).Config()
	pg.ForceGenericPlans(config)
	config.MaxConns = 1
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	pgtest.Must(t, err)
	t.Cleanup(db.Close)
	tenant := uuid.New()
	tenants, variants, carts := make([][16]byte, group), make([]string, group), make([]string, group)
	for i := range group {
		tenants[i], variants[i], carts[i] = tenant, fmt.Sprint("v", i), fmt.Sprint("cart", i)
	}
	read := func(what string) {
		t.Helper()
		rows, err := db.Query(t.Context(), `EXPLAIN (ANALYZE, TIMING OFF) `+clearNormalSQL, tenants, variants, unmarkedMax, tenants, carts)
		pgtest.Must(t, err)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		pgtest.Must(t, err)
		for _, line := range lines {
			if found := readRequests.FindStringSubmatch(line); found != nil {
				n, _ := strconv.Atoi(found[1])
				loops, _ := strconv.Atoi(found[2])
				if n*loops > group || loops > group {
					t.Errorf("%s: %s", what, line)
				}
			}
		}
	}
	read("empty")
	fill := func(slot int) {
		_, err := db.Exec(t.Context(), `INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, cart_id, variant_id, quantity)
			SELECT $1, gen_random_uuid(), 'normal', $2, 'c' || n, 'w' || n, 1 FROM generate_series(1, 3000) AS n`, tenant, slot)
		pgtest.Must(t, err)
	}
	fill(1)
	read("another stream has requests")
	fill(0)
	read("both streams have requests")
}
