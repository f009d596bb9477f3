package queues

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// A tick and a count of the load read a bounded number of pages, however many
// requests wait or were finished above the marks, before and after the table is
// analysed, in the pools of lanes and in the others.
func TestTicksAndCountsAreBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fill := func(status string, n int) {
		pgtest.Exec(t, db, `
			INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, status, reason, cart_id, variant_id, quantity)
			SELECT md5((n % 50)::text)::uuid, gen_random_uuid(), CASE n % 2 WHEN 0 THEN 'hot' ELSE 'normal' END, n % 2, $1,
			       CASE $1 WHEN 'failed' THEN 'out_of_stock' END, 'cart-' || n, 'variant-' || n % 1000, 1
			FROM generate_series(1, $2::integer) AS n`, status, n)
	}
	pgtest.Exec(t, db, `INSERT INTO lane_slots (lane, slot) SELECT 'hot', n FROM generate_series(0, 3) AS n`)
	fill("failed", 20_000) // below the marks
	pgtest.Exec(t, db, `UPDATE lane_slots SET low_water = 20000 WHERE slot >= 0`)
	check := func(when string) {
		t.Helper()
		for name, configure := range map[string]func(*pgxpool.Config){
			"generic plans": pg.ForceGenericPlans,
			"custom plans":  func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_custom_plan" },
		} {
			config := db.Config()
			configure(config)
			for _, c := range []struct {
				name, settings, sql string
				blocks              int
				args                []string
			}{
				{"tick of the hot lane", "SELECT", dueSQL, 100, []string{"'hot'"}},
				{"tick of the normal lane", "SELECT", dueSQL, 100, []string{"'normal'"}},
				{"count", countSettingsSQL, publishSQL, 4000, []string{"0", strconv.Itoa(lanes.LoadMax)}},
			} {
				if plan, blocks := explain(t, config, c.settings, c.sql, c.args...); blocks > c.blocks {
					t.Errorf("%s, %s with %s reads %d blocks, want at most %d:\n%s", when, c.name, name, blocks, c.blocks, plan)
				}
			}
		}
	}
	check("before anything waits")
	fill("queued", 20_000)
	check("while 20,000 wait")
	pgtest.Exec(t, db, `VACUUM (ANALYZE) reservation_requests`)
	check("once they are analysed")
	pgtest.Exec(t, db, `UPDATE reservation_requests SET status = 'done' WHERE status = 'queued'`)
	check("once they are decided")
	fill("queued", 2000)
	check("while 2,000 wait after them")
}

// explain returns the plan of a prepared statement, and how many blocks it read.
func explain(t *testing.T, config *pgxpool.Config, settings, sql string, args ...string) (plan string, blocks int) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	pgtest.Must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	var lines []string
	pgtest.Must(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), settings); err != nil {
			return err
		}
		if _, err := tx.Prepare(t.Context(), "reading", sql); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE reading (`+strings.Join(args, ", ")+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			return err
		}
		lines, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	}))
	plan = strings.Join(lines, "\n")
	_, counts, _ := strings.Cut(plan, "Buffers: shared ") // the first line is of the whole statement
	counts, _, _ = strings.Cut(counts, "\n")
	for count := range strings.FieldsSeq(counts) {
		kind, number, _ := strings.Cut(count, "=")
		if n, err := strconv.Atoi(number); err == nil && (kind == "hit" || kind == "read") {
			blocks += n
		}
	}
	if blocks == 0 {
		t.Fatalf("no blocks are counted:\n%s", plan)
	}
	return plan, blocks
}

// The load of long streams is an estimate. It is near the truth whether all
// requests wait or those at the end, and however the tenants and the streams are
// mixed.
func TestLoadIsNearTheTruth(t *testing.T) {
	t.Parallel()
	big, small := uuid.UUID{1}, uuid.UUID{2}
	// $1 and $2 are the tenants. Of each ten requests in a row, six are of the
	// first tenant in the normal lane, two of the second, and two hot.
	const fillSQL = `
		INSERT INTO reservation_requests (tenant_id, request_id, lane, status, cart_id, variant_id, quantity)
		SELECT CASE WHEN place %% 10 < 2 THEN $2::uuid ELSE $1::uuid END, gen_random_uuid(), CASE WHEN place %% 10 < 8 THEN 'normal' ELSE 'hot' END,
		       CASE WHEN n <= $3::integer THEN 'done' ELSE 'queued' END, 'cart', 'v', 1
		FROM (SELECT n, %s AS place FROM generate_series(1, $4::integer) AS n) AS numbered
		ORDER BY n`
	for name, c := range map[string]struct {
		place string // of a request among ten
		done  int    // of the first ones
		all   int
		off   int64 // how many percent the estimate may be off
	}{
		"few":                         {"n", 0, 200, 0},
		"in turns":                    {"n", 0, 40_000, 20},
		"in runs":                     {"n / 37", 0, 40_000, 20},
		"at random":                   {"hashint4(n) & 32767", 0, 40_000, 20},
		"the end waits":               {"hashint4(n) & 32767", 30_000, 40_000, 20},
		"a short end waits":           {"n", 39_000, 40_000, 20},
		"a very short end waits":      {"n", 39_960, 40_000, 0},
		"all are decided":             {"n", 40_000, 40_000, 0},
		"all but a few are decided":   {"n", 39_990, 40_000, 0},
		"just more than are all read": {"n", 0, 600, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			pgtest.Exec(t, db, `INSERT INTO lane_slots (lane, slot) VALUES ('hot', 0)`)
			pgtest.Exec(t, db, fmt.Sprintf(fillSQL, c.place), big, small, c.done, c.all)
			load := NewLoad(db)
			if published, err := load.Publish(t.Context(), 0); err != nil || !published {
				t.Fatal(published, err)
			}
			got, err := load.Read(t.Context(), publishTimeout)
			pgtest.Must(t, err)
			states, err := Lanes(t.Context(), db)
			pgtest.Must(t, err)
			near := func(what string, got int64, lane, where string, args ...any) {
				t.Helper()
				want := pgtest.Int(t, db, `SELECT count(*) FROM reservation_requests WHERE status = 'queued' AND `+where, args...)
				all := pgtest.Int(t, db, `SELECT count(*) FROM reservation_requests WHERE status = 'queued' AND lane = $1`, lane)
				if max(got-want, want-got) > (all*c.off+99)/100 {
					t.Errorf("%s: %d, in truth %d", what, got, want)
				}
			}
			normal := got.Lanes[lanes.Normal]
			near("normal depth", normal.Depth, "normal", `lane = 'normal'`)
			near("hot depth", got.Lanes[lanes.Hot].Depth, "hot", `lane = 'hot'`)
			near("depth of the shared stream", normal.Streams[0].Depth, "normal", `lane = 'normal'`)
			near("depth of the large tenant", normal.Deepest[big], "normal", `lane = 'normal' AND tenant_id = $1`, big)
			near("depth of the small tenant", normal.Deepest[small], "normal", `lane = 'normal' AND tenant_id = $1`, small)
			near("reported hot depth", states[0].Depth, "hot", `lane = 'hot'`)
			near("reported normal depth", states[1].Depth, "normal", `lane = 'normal'`)
		})
	}
}
