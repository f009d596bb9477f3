package verify_test

import (
	"testing"
	"time"

	"github.com/holdfast/holdfast/verify"
)

// The invariants hold after the record was pruned up to any row, if verify's
// retention ends before the cut. The service keeps the record one day longer
// than that retention. Here the cuts are between two transactions.
func TestRunAfterPruning(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.writeHistory()
	rows := s.Int(`SELECT count(*) FROM audit_log`)
	for _, cut := range s.quiet {
		var age time.Duration
		s.Must(s.DB.QueryRow(t.Context(), `SELECT clock_timestamp() - $1::timestamptz`, cut).Scan(&age))
		_, err := s.DB.Exec(t.Context(), `DELETE FROM audit_log WHERE created_at < $1`, cut)
		s.Must(err)
		report, err := verify.Run(t.Context(), s.DB, verify.Config{Retention: age})
		s.Must(err)
		for _, c := range report.Checks {
			if c.Broken > 0 {
				t.Errorf("after %d of %d rows were pruned: %s: %s", rows-s.Int(`SELECT count(*) FROM audit_log`), rows, c.Name, c.Sample)
			}
		}
	}
	if left := s.Int(`SELECT count(*) FROM audit_log`); left > rows/2 {
		t.Errorf("%d of %d rows are left", left, rows)
	}
}
