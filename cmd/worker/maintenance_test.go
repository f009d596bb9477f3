package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

const oldSQL = `
WITH aged AS (
    UPDATE reservation_requests
    SET created_at = created_at - interval '8 days', updated_at = updated_at - interval '8 days'
    WHERE status = 'failed'
    RETURNING 1
)
SELECT count(*) FROM aged`

const passesSQL = `
SELECT count(*)
FROM river.river_job
WHERE kind IN ('holdfast_sweep', 'holdfast_purge') AND state = 'completed'`

// Two workers sweep and purge by their schedules, with River's periodic jobs.
// No goroutine remains after their end.
func TestMaintenance(t *testing.T) { //nolint:paralleltest // it looks for goroutines that are left
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 5)
	shop.Admit("shirt", 8)
	leak := goleak.IgnoreCurrent()
	env := shop.Env("HOLD_TTL", "1s", "SWEEP_SCHEDULE", "@every 1s", "PURGE_SCHEDULE", "@every 1s")
	first, second := programtest.Start(t, run, env), programtest.Start(t, run, env)
	shop.Until("holds were made, and swept", func() bool {
		return shop.Int(`SELECT count(*) FROM reservations WHERE status = 'expired'`) == 5
	})
	if n := shop.Int(oldSQL); n != 3 {
		t.Fatalf("%d failed requests, want 3", n)
	}
	shop.Until("old requests are purged", func() bool { return shop.Count() == programtest.Count{Done: 5} })
	shop.Until("River has worked the first two passes and more", func() bool { return shop.Int(passesSQL) >= 3 })
	for _, worker := range []*programtest.Inside{first, second} {
		if err := worker.Stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	if err := goleak.Find(leak); err != nil {
		t.Errorf("left running: %v", err)
	}
}

// A backlog needs more than one pass of the sweep, and the next scheduled one
// is an hour away. The next passes run at once, and a purge runs between them.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 1000)
	const due = 450 // a pass has 200 batches
	if n := shop.Int(`
		WITH due AS (
			INSERT INTO reservations (tenant_id, reservation_id, resource_kind, resource_key, holder_id, quantity, first_held_at, held_at, expires_at)
			SELECT s.tenant_id, gen_random_uuid(), 'inventory.variant', s.variant_id, 'cart-' || n, 1, at, at, at
			FROM inventory_stocks s, generate_series(1, 450) AS n, (SELECT clock_timestamp() - interval '1 hour' AS at) AS past
			RETURNING 1
		), counted AS (
			UPDATE inventory_stocks SET reserved = reserved + (SELECT count(*) FROM due) RETURNING reserved
		)
		SELECT reserved FROM counted`); n != due {
		t.Fatalf("%d are reserved, want %d", n, due)
	}
	worker := programtest.Start(t, run, shop.Env("SWEEP_SCHEDULE", "@every 1h", "PURGE_SCHEDULE", "@every 1h", "SWEEP_BATCH", "1"))
	shop.Until("all due holds are swept", func() bool {
		return shop.Int(`SELECT count(*) FROM reservations WHERE status = 'expired'`) == due
	})
	shop.Until("both passes have ended", func() bool { return shop.Int(passesSQL) == 2 })
	if err := worker.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	worker := programtest.Start(t, run, shop.Env())
	var line struct{ Health string }
	if err := json.Unmarshal([]byte(worker.Stderr.Line(t, "the worker serves")), &line); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(line.Health)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/livez": "ok", "/readyz": "ok", "/health": "ok", "/metrics": "process_cpu_seconds_total"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Close = true
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v %s %.100s", path, err, answer.Status, body)
		}
	}
}
