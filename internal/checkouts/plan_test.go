package checkouts

import (
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
)

// A claim reads the checkouts that are due, and a purge those that are old,
// however many others there are.
func TestPlans(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pgtest.Exec(t, db, `
		INSERT INTO checkouts (tenant_id, checkout_id, cart_id, payment_reference, status, holds, units, deadline, next_attempt_at, ended_at)
		SELECT $1, gen_random_uuid(), n::text, 'p', CASE WHEN n % 5 = 0 THEN 'validating' ELSE 'committed' END, 1, 1,
		       clock_timestamp() + interval '1 hour', clock_timestamp() + interval '1 hour', CASE WHEN n % 5 > 0 THEN clock_timestamp() END
		FROM generate_series(1, 20000) AS n`, uuid.New())
	for _, known := range []string{"before the table is analysed", "once it is analysed"} {
		for sql, want := range map[string]string{
			`EXPLAIN (ANALYZE, COSTS OFF) ` + claimSQL: "checkouts_due_idx",
			`EXPLAIN (ANALYZE, COSTS OFF) ` + purgeSQL: "checkouts_ended_idx",
		} {
			args := []any{true, [][16]byte{}, "10 s", "1 s", "60 s", unaskedMax}
			if want == "checkouts_ended_idx" {
				args = []any{"1 hour", 100}
			}
			rows, err := db.Query(t.Context(), sql, args...)
			pgtest.Must(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			pgtest.Must(t, err)
			plan := strings.Join(lines, "\n")
			if !strings.Contains(plan, want) || strings.Contains(plan, "Seq Scan on checkouts") {
				t.Errorf("%s: want %s\n%s", known, want, plan)
			}
		}
		pgtest.Exec(t, db, `ANALYZE checkouts`)
	}
}
