package verify_test

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/verify"
)

// The invariants hold after the record was pruned up to any row, if verify's
// retention ends before the cut. The service keeps the record one day longer
// than that retention; here the day is a moment.
func TestRunAfterPruning(t *testing.T) {
	t.Parallel()
	const moment = 100 * time.Millisecond
	s := newShop(t)
	s.trade()
	rows := s.count(`SELECT count(*) FROM audit_log`)
	var cuts []time.Time
	s.must(s.db.QueryRow(t.Context(), `SELECT percentile_disc('{0.1,0.25,0.5,0.75,0.9}'::float8[]) WITHIN GROUP (ORDER BY created_at) FROM audit_log`).Scan(&cuts))
	for _, cut := range cuts {
		var age time.Duration
		s.must(s.db.QueryRow(t.Context(), `SELECT clock_timestamp() - $1::timestamptz`, cut).Scan(&age))
		_, err := audit.Prune(t.Context(), s.db, age, rows)
		s.must(err)
		report, err := verify.Config{Retention: max(age-moment, time.Microsecond)}.Run(t.Context(), s.db)
		s.must(err)
		for _, c := range report.Checks {
			if c.Broken > 0 {
				t.Errorf("after %d of %d rows were pruned: %s: %s", rows-s.count(`SELECT count(*) FROM audit_log`), rows, c.Name, c.Sample)
			}
		}
	}
	if left := s.count(`SELECT count(*) FROM audit_log`); left > rows/2 {
		t.Errorf("%d of %d rows are left", left, rows)
	}
}
