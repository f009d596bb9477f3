package sweeper_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/sweeper"
)

// One request that was decided long after its neighbours does not keep those behind it, and what is not finished, or not
// old, stays.
func TestPurgeGoesPastALateOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const fillSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity, status, updated_at)
SELECT $1, gen_random_uuid(), 'normal', 'c', 'v', 1, CASE n WHEN 20 THEN 'queued' ELSE 'done' END,
       clock_timestamp() - CASE WHEN n = 10 OR n > 4500 THEN interval '1 minute' ELSE interval '2 hours' END
FROM generate_series(1, 7000) AS n`
	if _, err := db.Exec(t.Context(), fillSQL, uuid.New()); err != nil {
		t.Fatal(err)
	}
	s, err := sweeper.New(db, slog.New(slog.DiscardHandler), sweeper.Config{RequestRetention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int64{4498, 0} {
		report, err := s.PurgeOnce(t.Context(), []requests.Wake{{Lane: requests.Normal}})
		if err != nil || report.Requests != want {
			t.Errorf("purged %+v, %v, want %d requests", report, err, want)
		}
	}
	var left int64
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM reservation_requests`).Scan(&left); err != nil || left != 2502 {
		t.Errorf("%d left, %v, want 2502", left, err)
	}
}
