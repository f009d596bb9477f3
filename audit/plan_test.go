package audit

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// A subscription that is far behind reads the log in the order of its index, up
// to the limit. The planner must neither sort nor collect all that is left, in
// any plan mode, although the read has two bounds.
func TestTailIsReadInOrder(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pgtest.Exec(t, db, `INSERT INTO audit_log (tenant_id, target_id, action, actor_kind, after)
		SELECT gen_random_uuid(), gen_random_uuid(), 'reservation.held', 'system', '{"quantity": 1}' FROM generate_series(1, 30000)`)
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			pgtest.Exec(t, db, `ANALYZE audit_log`)
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			pgtest.Must(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				for _, sql := range []string{`SELECT set_config('plan_cache_mode', '` + mode + `', true)`, `PREPARE tail (bigint, bigint, int) AS ` + readSQL} {
					if _, err := tx.Exec(t.Context(), sql); err != nil {
						return err
					}
				}
				rows, _ := tx.Query(t.Context(), `EXPLAIN EXECUTE tail (0, 30000, 500)`)
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if plan := strings.Join(lines, "\n"); strings.Contains(plan, "Sort") || !strings.Contains(plan, "Index Scan using audit_log_id_idx") {
					t.Errorf("analyzed %t, %s:\n%s", analyzed, mode, plan)
				}
				if err == nil {
					_, err = tx.Exec(t.Context(), `DEALLOCATE tail`)
				}
				return err
			}))
		}
	}
}
