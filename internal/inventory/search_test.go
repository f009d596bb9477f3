package inventory

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// A search for a prefix reads the stocks that it returns, by the index, however
// many stocks the tenant has.
func TestSearchReadsWhatItReturns(t *testing.T) {
	t.Parallel()
	db, tenant := pgtest.New(t), uuid.New()
	pgtest.Must(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO inventory_stocks (tenant_id, variant_id, stock) SELECT $1, 'v-' || n, 1 FROM generate_series(1, 20000) AS n`, tenant)
		return err
	}))
	for _, known := range []string{"before the table is analysed", "once it is analysed"} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			plan := planOf(t, db.Config().ConnConfig, mode, searchSQL, "'"+tenant.String()+"'", "'v-1'", "'v-1"+lastCharacter+"'", "20")
			if !strings.Contains(plan, "inventory_stocks_prefix_idx on inventory_stocks s ") || !strings.Contains(plan, "actual rows=20") {
				t.Errorf("%s (%s):\n%s", known, mode, plan)
			}
		}
		_, err := db.Exec(t.Context(), `ANALYZE inventory_stocks`)
		pgtest.Must(t, err)
	}
	found, err := Search(t.Context(), db, tenant, "v-1999", 20)
	pgtest.Must(t, err)
	if len(found) != 11 || found[0].VariantID != "v-1999" || found[1].VariantID != "v-19990" {
		t.Errorf("found %d: %+v", len(found), found)
	}
}

// planOf returns the plan of a statement that runs with the literals.
func planOf(t *testing.T, config *pgx.ConnConfig, mode, sql string, literals ...string) string {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), config)
	pgtest.Must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	for _, prepare := range []string{`SET plan_cache_mode = ` + mode, `PREPARE explained AS ` + sql} {
		_, err := conn.Exec(t.Context(), prepare, pgx.QueryExecModeSimpleProtocol)
		pgtest.Must(t, err)
	}
	rows, err := conn.Query(t.Context(), `EXPLAIN (ANALYZE, TIMING OFF) EXECUTE explained (`+strings.Join(literals, ", ")+`)`, pgx.QueryExecModeSimpleProtocol)
	pgtest.Must(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	pgtest.Must(t, err)
	return strings.Join(lines, "\n")
}
