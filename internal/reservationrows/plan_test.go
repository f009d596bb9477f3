package reservationrows

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// One resource has most of the holds, none of them due: a query for its due
// holds must not read them. A holder has a long history: a statement that locks
// what it holds of one key must not read that history.
func TestHotKeysAndLongHistoriesAreNotRead(t *testing.T) {
	t.Parallel()
	db, tenant, now := pgtest.New(t), uuid.New(), time.Now()
	due := NewDueOfKeys("k", `'-infinity'::timestamptz`, "")
	for _, fill := range []string{
		`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		 SELECT $1, gen_random_uuid(), 'k', 'hot', 'h' || n, 1, now(), now(), now() + interval '1 hour'
		 FROM generate_series(1, 20000) AS n`,
		`INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status, first_held_at, held_at, expires_at, ended_at)
		 SELECT $1, gen_random_uuid(), 'k', 'other' || n, 'till', 1, 'committed', now(), now(), now(), now()
		 FROM generate_series(1, 20000) AS n`,
	} {
		if _, err := db.Exec(t.Context(), fill, tenant); err != nil {
			t.Fatal(err)
		}
	}
	for _, known := range []string{"before it is analysed", "once it is analysed"} {
		for name, read := range map[string]struct {
			sql  string
			args []any
		}{
			"due of key":    {due.readSQL, []any{"k", []uuid.UUID{tenant}, []string{"hot"}, "{100}", now}},
			"due of window": {dueOfWindowSQL, []any{"k", tenant, "hot", "true", "", 100}},
			"sum":           {due.sumSQL, []any{"k", []uuid.UUID{tenant}, []string{"hot"}, now}},
			"due of keys":   {due.lockSQL, []any{"k", []uuid.UUID{tenant}, []string{"hot"}, "{500}", now}},
			"some of keys":  {due.lockSomeSQL, []any{"k", []uuid.UUID{tenant}, []string{"hot"}, "{500}", now}},
			"lock":          {lockNamedSQL, []any{"k", []uuid.UUID{tenant}, []uuid.UUID{uuid.Max}, []uuid.UUID{tenant}, []string{"till"}, []string{"hot"}}},
			"try lock":      {tryLockNamedSQL, []any{"k", []uuid.UUID{tenant}, []uuid.UUID{uuid.Max}, []uuid.UUID{tenant}, []string{"till"}, []string{"hot"}}},
			"holder":        {heldByHolderSQL, []any{tenant, "nobody", "k", 100}},
			"of holder":     {byHolderSQL, []any{tenant, "nobody", "k", uuid.Max, 1000}},
			"extend":        {lockLiveSQL, []any{tenant, "nobody", "k", 100}},
			"of checkout":   {ofCheckoutSQL, []any{tenant, uuid.Max, 100}},
			"keep":          {keepSQL, []any{tenant, uuid.Max}},
		} {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				if plan, blocks := explain(t, db.Config().ConnConfig, mode, read.sql, read.args); blocks > 20 {
					t.Errorf("%s, %s read %d blocks to find nothing (%s):\n%s", known, name, blocks, mode, plan)
				}
			}
		}
		if _, err := db.Exec(t.Context(), `VACUUM (ANALYZE) reservations`); err != nil {
			t.Fatal(err)
		}
	}
}

// Nearly all holds are due, as after an outage. Each search for due holds reads
// up to its limit of them, in the order of an index, and sorts nothing.
func TestMostlyDue(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	const fillSQL = `
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'k', 'key', 'h' || n, 1, now(), now(), now() - random() * interval '10 hours'
		FROM generate_series(1, 60000) AS n`
	pgtest.Exec(t, db, fillSQL, tenant)
	now, since := time.Now(), time.Now().Add(-9*time.Hour)
	hotPath := db.Config()
	pg.ForceGenericPlans(hotPath)
	all, marked := NewDueOfKeys("k", `'-infinity'::timestamptz`, ""), NewDueOfKeys("k", `'`+since.Format(time.RFC3339)+`'::timestamptz`, "")
	for _, known := range []string{"before it is analysed", "once it is analysed"} {
		for name, find := range map[string]func(pgx.Tx) ([]Reservation, error){
			"due": func(tx pgx.Tx) ([]Reservation, error) {
				due, _, err := Due(t.Context(), tx, DueQuery{Kind: "k"}, 500)
				return due, err
			},
			"due from": func(tx pgx.Tx) ([]Reservation, error) {
				due, _, err := Due(t.Context(), tx, DueQuery{Kind: "k", From: since}, 500)
				return due, err
			},
			"lock due": func(tx pgx.Tx) ([]Reservation, error) {
				_, locked, _, err := LockDueTx(t.Context(), tx, DueQuery{Kind: "k"}, 500)
				return locked, err
			},
		} {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				if due, read := rowsRead(t, db, mode, find); due != 500 || read > 1100 {
					t.Errorf("%s, %s found %d rows and read %d, want 500 and at most 1100 (%s)", known, name, due, read, mode)
				}
			}
		}
		for name, read := range map[string]struct {
			config *pgx.ConnConfig
			sql    string
			args   []any
		}{
			"due of key":    {db.Config().ConnConfig, all.readSQL, []any{"k", []uuid.UUID{tenant}, []string{"key"}, "{500}", now}},
			"due of window": {db.Config().ConnConfig, dueOfWindowSQL, []any{"k", tenant, "key", "true", "", 500}},
			"due of keys":   {hotPath.ConnConfig, all.lockSQL, []any{"k", []uuid.UUID{tenant}, []string{"key"}, "{500}", now}},
			"from a mark":   {hotPath.ConnConfig, marked.lockSQL, []any{"k", []uuid.UUID{tenant}, []string{"key"}, "{500}", now}},
		} {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				if plan, _ := explain(t, read.config, mode, read.sql, read.args); strings.Contains(plan, "Sort") {
					t.Errorf("%s, %s sorts (%s):\n%s", known, name, mode, plan)
				}
			}
		}
		pgtest.Exec(t, db, `VACUUM (ANALYZE) reservations`)
	}
}

// rowsRead returns how many rows find returns, and how many rows of
// reservations it reads.
func rowsRead(t *testing.T, db *pgxpool.Pool, mode string, find func(pgx.Tx) ([]Reservation, error)) (found, read int) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `SELECT set_config('plan_cache_mode', $1, true)`, mode); err != nil {
		t.Fatal(err)
	}
	// Postgres counts for the session until it reports the counts.
	const readSQL = `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'reservations'`
	var before, after int
	if err := tx.QueryRow(t.Context(), readSQL).Scan(&before); err != nil {
		t.Fatal(err)
	}
	rows, err := find(tx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.QueryRow(t.Context(), readSQL).Scan(&after); err != nil {
		t.Fatal(err)
	}
	return len(rows), after - before
}

// Holds are ended by primary key, however many of the resource are due and
// whatever the table's statistics are. Compared row by row, a sweep of 20,000
// ended 600 per second.
func TestHoldsAreEndedByTheirKeys(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	const fillSQL = `
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'k', 'hot', 'h' || n, 1, now(), now(), now()
		FROM generate_series(1, 20000) AS n`
	if _, err := db.Exec(t.Context(), fillSQL, tenant); err != nil {
		t.Fatal(err)
	}
	tenants, ids := make([]uuid.UUID, 250), make([]uuid.UUID, 250)
	for i := range ids {
		tenants[i], ids[i] = tenant, uuid.New()
	}
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for _, versions := range [][]uint32{nil, make([]uint32, 250)} {
			args := []any{tenants, ids, "expired", "ttl", time.Now(), versions}
			if plan, _ := explain(t, db.Config().ConnConfig, mode, endSQL, args); !strings.Contains(plan, "Index Scan using reservations_pkey") {
				t.Errorf("the holds are not found by their keys (%s, %d versions):\n%s", mode, len(versions), plan)
			}
		}
	}
}

// A purge with a bound does not read rows before it. A purge that continues at
// a position does not read rows before that position.
func TestPurgeReadsWithinItsBounds(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	const fillSQL = `
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status,
		                          first_held_at, held_at, expires_at, ended_at)
		SELECT $1, gen_random_uuid(), 'k', 'kept', 'h', 1, 'committed', now(), now(), now() - interval '300 days', now() - interval '300 days'
		FROM generate_series(1, 20000)`
	if _, err := db.Exec(t.Context(), fillSQL, tenant); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `VACUUM (ANALYZE) reservations`); err != nil {
		t.Fatal(err)
	}
	first, later := time.Unix(0, 0), time.Now().AddDate(0, 0, -100)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		for name, c := range map[string]struct {
			after   time.Time
			within  string
			bounded bool
		}{
			"unbounded":  {first, "0", false},
			"within":     {first, "97 days", true},
			"a position": {later, "0", true},
		} {
			plan, blocks := explain(t, db.Config().ConnConfig, mode, purgeSQL, []any{"k", "90 days", 500, "false", c.after, c.within})
			if (blocks <= 20) != c.bounded {
				t.Errorf("%s read %d blocks to find nothing (%s):\n%s", name, blocks, mode, plan)
			}
		}
	}
}

// Nearly all reservations ended before the retention. A batch of a purge reads
// what it deletes, in the order of the index, also where pages that are not in
// sequence are expensive.
func TestPurgeReadsItsBatch(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	pgtest.Exec(t, db, `
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, status,
		                          first_held_at, held_at, expires_at, ended_at)
		SELECT $1, gen_random_uuid(), 'k', 'key', 'h', 1, 'committed', now(), now(), ended, ended
		FROM generate_series(1, 60000) AS n, LATERAL (SELECT now() - (100 + random()) * interval '1 day' + n * interval '0' AS ended) AS past`, tenant)
	pgtest.Exec(t, db, `VACUUM (ANALYZE) reservations`)
	for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
		deleted, read := rowsRead(t, db, mode, func(tx pgx.Tx) ([]Reservation, error) {
			if _, err := tx.Exec(t.Context(), `SET LOCAL random_page_cost = 4`); err != nil {
				return nil, err
			}
			purged, err := PurgeEnded(t.Context(), tx, Purge{Kind: "k", Retention: 90 * 24 * time.Hour, Committed: true}, 500)
			return make([]Reservation, purged.Count), err
		})
		if deleted != 500 || read > 1600 {
			t.Errorf("%d rows are deleted and %d read, want 500 and at most 1600 (%s)", deleted, read, mode)
		}
	}
}

// The next holds to fall due are read in the order of an index, however many
// there are.
func TestNextDueReadsWithinItsBound(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	const fillSQL = `
		INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
		SELECT $1, gen_random_uuid(), 'k', 'key' || n % 100, 'h' || n, 1, now(), now(), now() + n * interval '1 second'
		FROM generate_series(1, 20000) AS n`
	for _, owner := range []uuid.UUID{tenant, uuid.New()} {
		pgtest.Exec(t, db, fillSQL, owner)
	}
	for _, known := range []string{"before it is analysed", "once it is analysed"} {
		for sql, want := range map[string]string{nextDueSQL: "Index Scan using reservations_deadline_idx on reservations", nextDueOfTenantSQL: "Index Scan Backward using reservations_pkey on reservations"} {
			plan, _ := explain(t, db.Config().ConnConfig, "force_custom_plan", sql, []any{tenant, "k", 20, nextDueScan})
			if !strings.Contains(plan, want) {
				t.Errorf("%s, it is not read by %s:\n%s", known, want, plan)
			}
		}
		pgtest.Exec(t, db, `VACUUM (ANALYZE) reservations`)
	}
}

// explain returns the plan of a prepared statement, and how many blocks it
// read.
func explain(t *testing.T, config *pgx.ConnConfig, mode, sql string, args []any) (plan string, blocks int) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `SET plan_cache_mode = `+mode); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Prepare(t.Context(), "reading", sql); err != nil {
		t.Fatal(err)
	}
	values := make([]string, len(args))
	for i, arg := range args {
		if err := conn.QueryRow(t.Context(), `SELECT quote_nullable($1::`+typeOf(arg)+`)`, arg).Scan(&values[i]); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := conn.Query(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) EXECUTE reading (`+strings.Join(values, ", ")+`)`, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines { // the first line is of the whole statement
		if _, counts, ok := strings.Cut(line, "Buffers: shared "); ok {
			for count := range strings.FieldsSeq(counts) {
				var n int
				if _, err := fmt.Sscanf(count, "hit=%d", &n); err == nil {
					blocks += n
				} else if _, err := fmt.Sscanf(count, "read=%d", &n); err == nil {
					blocks += n
				}
			}
			break
		}
	}
	return strings.Join(lines, "\n"), blocks
}

func typeOf(arg any) string {
	switch arg.(type) {
	case uuid.UUID:
		return "uuid"
	case []uuid.UUID:
		return "uuid[]"
	case []string:
		return "text[]"
	case []uint32:
		return "xid[]"
	case time.Time:
		return "timestamptz"
	case int:
		return "bigint"
	default:
		return "text"
	}
}
