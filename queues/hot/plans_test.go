package hot_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
)

// Plans that were made while all tables were empty would read whole tables.
// They are replaced, so that admission and a drain read about as many rows as
// they need once the tables are large.
func TestPlansAreReplaced(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Exec(`VACUUM (ANALYZE)`)
	config := b.DB.Config()
	pg.ForceGenericPlans(config)
	config.MaxConns = 1 // so that one connection plans all statements
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	b.Stock("shoe", 100_000)
	b.Exec(`UPDATE inventory_stocks SET max_per_cart = 5`) // so that the cart's holds are read
	b.Stock("sold-out", 0)
	busy := *b
	busy.DB = db
	lane := busy.Lane(queues.LaneConfig{})
	decide := func(from, to int) {
		for i := from; i < to; i++ {
			for _, variant := range []string{"shoe", "sold-out"} {
				busy.SubmitAs(requestrows.Submission{CartID: fmt.Sprint("cart-", i), VariantID: variant, Quantity: 1, IdempotencyKey: fmt.Sprint(variant, i)})
			}
		}
		busy.Tick(lane)
	}
	decide(0, 1)
	const many = 20_000
	for _, fill := range []string{
		`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v' || n, 1 FROM generate_series(1, $2::integer) AS n`,
		`INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, status, cart_id, variant_id, quantity, idempotency_key, fingerprint)
		 SELECT $1, gen_random_uuid(), 'normal', 9, 'done', 'old-' || n, 'shoe', 1, 'old-' || n, '' FROM generate_series(1, $2::integer) AS n`,
		`INSERT INTO idempotency_keys (tenant_id, idempotency_key, fingerprint) SELECT $1, 'other-' || n, '' FROM generate_series(1, $2::integer) AS n`,
	} {
		b.Exec(fill, b.Tenant, many)
	}
	b.Exec(`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), $3, 'shoe', 'old-' || n, 1, now(), now(), now() + interval '1 hour' FROM generate_series(1, $2::integer) AS n`,
		b.Tenant, many, inventory.Kind)
	flush := `SELECT pg_stat_force_next_flush()`
	if b.Int(`SELECT current_setting('server_version_num')::integer`) < 150_000 {
		flush = `SELECT pg_sleep(0.6)` // a session reports its statistics twice per second
	}
	read := func() int64 {
		t.Helper()
		if _, err := db.Exec(t.Context(), flush); err != nil { // the statistics of its connection
			t.Fatal(err)
		}
		return b.Int(`
			SELECT (SELECT sum(seq_tup_read) FROM pg_stat_user_tables WHERE relname = ANY ($1))
			     + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = ANY ($1))`,
			[]string{"inventory_stocks", "reservation_requests", "reservations", "idempotency_keys"})
	}
	next := 1
	b.Until(fmt.Sprintf("more than one row per request and far fewer than a table's %d are read to admit and decide 20 requests", many), func() bool {
		before := read()
		decide(next, next+10)
		next += 10
		n := read() - before
		return n > 20 && n < many/4
	})
}
