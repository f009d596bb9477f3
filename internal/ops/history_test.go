package ops

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/auditrows"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// ofUnits is a row of a reservation of units.
func ofUnits(tenant, reservation uuid.UUID, block, action string, units ...string) audit.Entry {
	state := &auditrows.Reservation{ResourceKind: "inventory.variant", ResourceKey: block, HolderID: "cart", Quantity: int64(len(units))}
	if len(units) > 0 {
		state.UnitIDs = string(auditrows.AppendTexts(nil, units))
	}
	return audit.Entry{
		TenantID: tenant, TargetID: reservation, Action: "reservation." + action, Origin: audit.Origin{Actor: audit.System()}, Reservation: state,
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
		ofUnits(tenant, uuid.New(), "hall", "held"),
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
			if strings.Contains(string(r.Before)+string(r.After), "unit_ids") {
				t.Errorf("%s lists the units: %s, %s", r.Action, r.Before, r.After)
			}
			lines = append(lines, strings.TrimSpace(names[r.TargetID]+" "+strings.TrimPrefix(r.Action, "reservation.")))
		}
		return lines
	}
	want := []string{"first held", "first released", "second held"}
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
		INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, resource_kind, resource_key, holder_id, quantity, expires_at, unit_ids)
		SELECT $1, gen_random_uuid(), 'reservation.held', 'system', 'inventory.variant', 'b' || n % 1000, 'c', 2, now(), jsonb_build_array('A1', 'A' || n % 50)
		FROM generate_series(1, 20000) AS n`, tenant)
	pgtest.Exec(t, db, `
		INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, resource_kind, resource_key, holder_id, quantity, expires_at, unit_ids)
		SELECT $1, gen_random_uuid(), 'reservation.held', 'system', 'inventory.variant', 'busy', 'c', n, now(), jsonb_build_array('A1')
		FROM generate_series(1, 1001) AS n`, tenant)
	pgtest.Exec(t, db, `VACUUM ANALYZE audit_log`)
	records, err := UnitHistory(t.Context(), db, tenant, "busy", "A1")
	if err != nil {
		t.Fatal(err)
	}
	if len(records) != HistoryMax || !strings.Contains(string(records[0].After), `"quantity":2,`) || strings.Contains(string(records[0].After), "unit_ids") {
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
