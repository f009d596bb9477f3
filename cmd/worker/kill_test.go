package main

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// waitingSQL counts the statements of workers that wait for a lock.
const waitingSQL = `
SELECT count(*)
FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'holdfast-worker' AND wait_event_type = 'Lock'`

// lockStockSQL blocks a drain after it has claimed its requests.
const lockStockSQL = `SELECT FROM inventory_stocks WHERE tenant_id = $1 AND variant_id = $2 FOR UPDATE`

// A worker is killed while its drain has claimed requests and waits for a
// stock. The drain is rolled back and its locks are released, although the
// stock is still locked. The next worker decides all requests, once.
func TestKilledInTheMiddleOfADrain(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	for _, variant := range []string{"ticket", "shirt"} {
		shop.Stock(variant, 50)
		if variant == "ticket" {
			shop.Pin(variant)
		}
		shop.Admit(variant, 100)
	}
	obstacle, err := shop.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = obstacle.Rollback(t.Context()) }()
	for _, variant := range []string{"shirt", "ticket"} {
		if _, err := obstacle.Exec(t.Context(), lockStockSQL, shop.Tenant, variant); err != nil {
			t.Fatal(err)
		}
	}

	first := programtest.StartProcess(t, shop.Env())
	shop.Until("drains of both lanes wait for their stock", func() bool { return shop.Int(waitingSQL) >= 2 })
	first.Signal(syscall.SIGKILL)
	if code := first.Wait(); code != -1 {
		t.Fatalf("exit code %d of a worker that was killed", code)
	}
	shop.Until("the dead worker's transactions have ended", func() bool { return shop.Int(waitingSQL) == 0 })
	if diff := cmp.Diff(programtest.Count{Unfinished: 200}, shop.Count()); diff != "" {
		t.Fatalf("rows after the kill (-want +got):\n%s", diff)
	}

	second := programtest.StartProcess(t, shop.Env())
	shop.Until("the next worker drains", func() bool { return shop.Int(waitingSQL) >= 2 })
	if err := obstacle.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	shop.Await(programtest.Count{Done: 100, Failed: 100, Held: 100})
	second.Signal(syscall.SIGTERM)
	if code := second.Wait(); code != 0 {
		t.Errorf("exit code %d of a worker that was stopped; it logged:\n%s", code, second.Stderr)
	}
	shop.Verify()
}

// A worker is frozen during a drain, with its slot locked. The database ends
// its session, another worker decides all requests, and the frozen one
// continues to work when it is thawed.
func TestFrozenInTheMiddleOfADrain(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("ticket", 50)
	shop.Pin("ticket")
	shop.Admit("ticket", 100)
	obstacle, err := shop.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = obstacle.Rollback(t.Context()) }()
	if _, err := obstacle.Exec(t.Context(), lockStockSQL, shop.Tenant, "ticket"); err != nil {
		t.Fatal(err)
	}
	first := programtest.StartProcess(t, shop.Env())
	shop.Until("a drain waits for the stock", func() bool { return shop.Int(waitingSQL) >= 1 })
	first.Signal(syscall.SIGSTOP)
	if err := obstacle.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}

	second := programtest.StartProcess(t, shop.Env())
	shop.Await(programtest.Count{Done: 50, Failed: 50, Held: 50})
	second.Signal(syscall.SIGTERM)
	if code := second.Wait(); code != 0 {
		t.Errorf("exit code %d of a worker that was stopped; it logged:\n%s", code, second.Stderr)
	}

	first.Signal(syscall.SIGCONT)
	shop.Stock("ticket", 200)
	shop.Admit("ticket", 100)
	shop.Await(programtest.Count{Done: 150, Failed: 50, Held: 150})
	first.Signal(syscall.SIGTERM)
	if code := first.Wait(); code != 0 {
		t.Errorf("exit code %d of the worker that was frozen; it logged:\n%s", code, first.Stderr)
	}
	shop.Verify()
}
