package projections

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// A rebuild reads the log, and the keys and states of a projection, in the order
// of their indexes: a page costs the same however many rows follow.
func TestPagesAreReadInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pgtest.Exec(t, db, `INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after)
		SELECT gen_random_uuid(), gen_random_uuid(), 'reservation.held', 'system', '{"quantity": 1}' FROM generate_series(1, 30000)`)
	pgtest.Exec(t, db, `INSERT INTO projection_snapshots (tenant_id, projection_name, key, state, version)
		SELECT gen_random_uuid(), 'a.b', n::text, '{}', 1 FROM generate_series(1, 30000) AS n`)
	const first = `'00000000-0000-0000-0000-000000000000', ''`
	statements := map[string][3]string{
		"record": {replaySQL, `bigint, bigint, int`, `0, 30000, 500`},
		"keys":   {keysSQL, `text, uuid, text, int`, `'a.b', ` + first + `, 500`},
		"states": {pageSQL, `text, uuid, text, int`, `'a.b', ` + first + `, 500`},
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			pgtest.Exec(t, db, `ANALYZE audit_log`)
			pgtest.Exec(t, db, `ANALYZE projection_snapshots`)
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			for name, statement := range statements {
				pgtest.Must(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					for _, sql := range []string{`SELECT set_config('plan_cache_mode', '` + mode + `', true)`, `PREPARE page (` + statement[1] + `) AS ` + statement[0]} {
						if _, err := tx.Exec(t.Context(), sql); err != nil {
							return err
						}
					}
					rows, _ := tx.Query(t.Context(), `EXPLAIN EXECUTE page (`+statement[2]+`)`)
					lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
					if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Sort") || !strings.Contains(plan, "Index") {
						t.Errorf("%s, analyzed %t, %s:\n%s", name, analyzed, mode, plan)
					}
					if err == nil {
						_, err = tx.Exec(t.Context(), `DEALLOCATE page`)
					}
					return err
				}))
			}
		}
	}
}
