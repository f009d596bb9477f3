package main

import (
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// While every request fails with an error, bounded drains end in time and
// report that requests are left. They end no request as failed, however many
// drains run.
func TestDrainWhileEveryRequestFails(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 100)
	shop.Admit("shirt", 40)
	exec := func(sql string) {
		t.Helper()
		if _, err := shop.DB.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`ALTER TABLE reservations ADD CONSTRAINT wrong CHECK (quantity < 0) NOT VALID`)
	for range 8 {
		expectReport(t, pass(t, shop, "drain", "ONESHOT_TIME_MAX", "5s"), map[string]any{"job": "drain", "held": 0., "rejected": 0., "more": true})
		exec(`UPDATE reservation_requests SET claim_expires_at = clock_timestamp() WHERE status = 'processing'`) // the backoff is over
	}
	exec(`ALTER TABLE reservations DROP CONSTRAINT wrong`)
	shop.Until("all are held", func() bool {
		pass(t, shop, "drain")
		return shop.Count().Done == 40
	})
	shop.Verify()
}
