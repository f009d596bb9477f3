package ops

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// ofUnits is a row of a reservation of units.
func ofUnits(tenant, reservation uuid.UUID, block, action string, units ...string) audit.Entry {
	list := `"` + strings.Join(units, `","`) + `"`
	return audit.Entry{
		TenantID: tenant, TargetID: reservation, Action: action, Origin: audit.Origin{Actor: audit.System()},
		After: fmt.Appendf(nil, `{"resource_key":%q,"unit_ids":[%s]}`, block, list),
	}
}

// The history of a unit has the rows of the reservations that had it, in their
// order: none of another block, tenant or unit, whatever their names are.
func TestUnitHistory(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tenant, other := uuid.New(), uuid.New()
	first, second := uuid.New(), uuid.New()
	entries := []audit.Entry{
		ofUnits(tenant, first, "hall", "held", "A1", "A2"),
		ofUnits(tenant, uuid.New(), "stalls", "held", "A1"),
		ofUnits(other, uuid.New(), "hall", "held", "A1"),
		ofUnits(tenant, first, "hall", "released", "A1", "A2"),
		ofUnits(tenant, uuid.New(), "A1", "held", "hall"),
		ofUnits(tenant, uuid.New(), "hall", "held", "A11", tenant.String()),
		ofUnits(tenant, second, "hall", "held", "A1"),
		audit.Entry{TenantID: tenant, TargetID: uuid.New(), Action: "held", After: []byte(`{"resource_key":"hall"}`), Origin: audit.Origin{Actor: audit.System()}},
	}
	pgtest.Must(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error { return audit.WriteTx(t.Context(), tx, entries) }))
	shown := func(tenant uuid.UUID, block, unit string) (lines []string) {
		t.Helper()
		records, err := UnitHistory(t.Context(), db, tenant, block, unit)
		if err != nil {
			t.Fatal(err)
		}
		names := map[uuid.UUID]string{first: "first", second: "second"}
		for _, r := range records {
			lines = append(lines, strings.TrimSpace(names[r.TargetID]+" "+r.Action+" "+string(r.After)))
		}
		return lines
	}
	const after = ` {"resource_key": "hall"}`
	want := []string{"first held" + after, "first released" + after, "second held" + after}
	if diff := cmp.Diff(want, shown(tenant, "hall", "A1")); diff != "" {
		t.Errorf("A1 (-want +got):\n%s", diff)
	}
	for _, c := range []struct {
		tenant      uuid.UUID
		block, unit string
		rows        int
	}{
		{other, "hall", "A1", 1}, {other, "hall", "A2", 0}, {tenant, "stalls", "A1", 1}, {tenant, "A1", "hall", 1}, {tenant, "hall", "hall", 0},
		{tenant, "hall", tenant.String(), 1}, {tenant, "hall", "A", 0}, {tenant, "none", "A1", 0}, {uuid.New(), "hall", "A1", 0},
	} {
		if got := shown(c.tenant, c.block, c.unit); len(got) != c.rows {
			t.Errorf("%s of %s: %q, want %d rows", c.unit, c.block, got, c.rows)
		}
	}
}

// The history of a unit is found by its index among the rows of many blocks with
// units of the same names, and is bounded.
func TestUnitHistoryIsBounded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tenant := uuid.New()
	pgtest.Exec(t, db, `
		INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after)
		SELECT $1, gen_random_uuid(), 'held', 'system', jsonb_build_object('resource_key', 'b' || n % 1000, 'unit_ids', jsonb_build_array('A1', 'A' || n % 50))
		FROM generate_series(1, 20000) AS n`, tenant)
	pgtest.Exec(t, db, `
		INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after)
		SELECT $1, gen_random_uuid(), 'held', 'system', jsonb_build_object('resource_key', 'busy', 'unit_ids', jsonb_build_array('A1'), 'n', n)
		FROM generate_series(1, 1001) AS n`, tenant)
	pgtest.Exec(t, db, `VACUUM ANALYZE audit_log`)
	records, err := UnitHistory(t.Context(), db, tenant, "busy", "A1")
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != HistoryMax || string(records[0].After) != `{"n": 2, "resource_key": "busy"}` {
		t.Errorf("%d rows, the first is %s", len(records), records[0].After)
	}
	rows, err := db.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+unitHistorySQL, tenant, "b7", "A1", HistoryMax)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	if !strings.Contains(plan, "audit_log_units_idx") || strings.Contains(plan, "Rows Removed by Index Recheck") {
		t.Errorf("the plan is\n%s", plan)
	}
}
