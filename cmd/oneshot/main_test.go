package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/checkouts"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// pass runs a pass to its end and returns its report.
func pass(t *testing.T, shop *programtest.Fixture, command string, more ...string) map[string]any {
	t.Helper()
	stdout, stderr, err := programtest.Once(t, run, shop.Env(more...), strings.Fields(command)...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, stderr)
	}
	return reportOf(t, stdout)
}

func reportOf(t *testing.T, stdout string) (report map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || strings.Count(stdout, "\n") != 1 {
		t.Fatalf("it printed %q, want one line of JSON: %v", stdout, err)
	}
	return report
}

func expectReport(t *testing.T, report map[string]any, want map[string]any) {
	t.Helper()
	got := map[string]any{}
	for name := range want {
		got[name] = report[name]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
}

const dueSQL = `SELECT count(*) FROM reservations WHERE status = 'held' AND expires_at <= clock_timestamp()`

// Without a command, sweep runs.
func TestSweep(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 10)
	shop.Admit("shirt", 7)
	expectReport(t, pass(t, shop, "drain", "HOLD_TTL", "1s"), map[string]any{"claimed": 7., "held": 7., "more": false})
	shop.Until("all holds are due", func() bool { return shop.Int(dueSQL) == 7 })
	report := pass(t, shop, "", "SWEEP_BATCH", "3")
	expectReport(t, report, map[string]any{"expired_count": 7.})
	if report["scanned_at"] == nil {
		t.Error("the report does not have the time of its query")
	}
	expectReport(t, pass(t, shop, "sweep"), map[string]any{"expired_count": 0.})
	if diff := cmp.Diff(programtest.Count{Done: 7}, shop.Count()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	shop.Verify()
}

// Two tasks share the hot slots: each slot belongs to one task, and together
// they decide all requests.
func TestDrainInTasks(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	const variants = 8
	for i := range variants {
		variant := fmt.Sprintf("ticket-%d", i)
		shop.Stock(variant, 3)
		shop.Pin(variant)
		shop.Admit(variant, 5)
	}
	first := pass(t, shop, "drain", "WORKER_LANES", "hot", "CLOUD_RUN_TASK_COUNT", "2")
	if left := shop.Count().Unfinished; left == 0 || left != variants*5-int(first["claimed"].(float64)) {
		t.Errorf("%d requests are left of %d, of which the first task claimed %v", left, variants*5, first["claimed"])
	}
	pass(t, shop, "drain", "WORKER_LANES", "hot", "CLOUD_RUN_TASK_COUNT", "2", "CLOUD_RUN_TASK_INDEX", "1")
	if diff := cmp.Diff(programtest.Count{Done: variants * 3, Failed: variants * 2, Held: variants * 3}, shop.Count()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	shop.Verify()
}

const abandonSQL = `
UPDATE reservation_requests
SET status = 'processing', attempts = 1, claim_epoch = 1, claim_expires_at = clock_timestamp() - interval '1 minute'
WHERE status = 'queued'`

// A request that was claimed for an isolated retry and never finished is taken
// over.
func TestRecover(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 2)
	shop.Admit("shirt", 3)
	if _, err := shop.DB.Exec(t.Context(), abandonSQL); err != nil {
		t.Fatal(err)
	}
	expectReport(t, pass(t, shop, "recover"), map[string]any{"tried": 3., "held": 2., "rejected": 1.})
	if diff := cmp.Diff(programtest.Count{Done: 2, Failed: 1, Held: 2}, shop.Count()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	shop.Verify()
}

const ageSQL = `UPDATE reservation_requests SET updated_at = clock_timestamp() - interval '8 days', created_at = clock_timestamp() - interval '8 days'`

// Two tasks share the streams.
func TestPurgeInTasks(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	const variants = 8
	for i := range variants {
		variant := fmt.Sprintf("ticket-%d", i)
		shop.Pin(variant) // the variant is unknown, so every request fails
		shop.Admit(variant, 5)
	}
	shop.Admit("shirt", 5)
	pass(t, shop, "drain")
	if _, err := shop.DB.Exec(t.Context(), ageSQL); err != nil {
		t.Fatal(err)
	}
	deleted := 0.
	for _, task := range []string{"0", "1"} {
		n := pass(t, shop, "purge", "CLOUD_RUN_TASK_COUNT", "2", "CLOUD_RUN_TASK_INDEX", task)["requests"].(float64)
		if n == 0 || n == variants*5+5 {
			t.Errorf("task %s purged %v requests of %d, want a share", task, n, variants*5+5)
		}
		deleted += n
	}
	if diff := cmp.Diff(programtest.Count{}, shop.Count()); diff != "" || deleted != variants*5+5 {
		t.Errorf("%v deleted; rows (-want +got):\n%s", deleted, diff)
	}
}

func TestVerify(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 2)
	expectReport(t, pass(t, shop, "verify"), map[string]any{"ok": true})
	expectReport(t, pass(t, shop, "verify", "CLOUD_RUN_TASK_COUNT", "2", "CLOUD_RUN_TASK_INDEX", "1"), map[string]any{"left_to_first_task": true})
	if _, err := shop.DB.Exec(t.Context(), `UPDATE inventory_stocks SET reserved = 1`); err != nil {
		t.Fatal(err)
	}
	stdout, _, err := programtest.Once(t, run, shop.Env(), "verify")
	if err == nil || !strings.Contains(stdout, `"ok":false`) {
		t.Errorf("a broken invariant: error %v, report %s", err, stdout)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"swep"}, {"sweep", "now"}, {"--help", "sweep"}} {
		_, _, err := programtest.Once(t, run, map[string]string{}, args...)
		var usage *boot.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "sweep|drain|recover|purge|verify|migrate") {
			t.Errorf("%q: %v, want the usage", args, err)
		}
	}
}

// Help needs no environment, is printed to stdout, and is not a failure.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--help", "-h", "help"} {
		stdout, stderr, err := programtest.Once(t, run, map[string]string{}, flag)
		for _, want := range append(strings.Split(boot.PassNames(), "|"), "Usage: oneshot", "DATABASE_URL") {
			if err != nil || stderr != "" || !strings.Contains(stdout, want) {
				t.Errorf("%s: %v, stderr %q, want %q in\n%s", flag, err, stderr, want, stdout)
			}
		}
	}
}

const meteredSQL = `
INSERT INTO command_keys (tenant_id, queue, idempotency_key, command_id, kind, fingerprint, created_at)
SELECT gen_random_uuid(), 'q', n, gen_random_uuid(), 'k', '', clock_timestamp() - n * interval '1 hour'
FROM generate_series(1, 5) AS n`

// With metered commands, migrate creates their tables and purge deletes from
// them. Without, neither uses them.
func TestMetered(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	on := []string{"METERED_COMMANDS_ENABLED", "true", "METERED_RETENTION", "150m"}
	for _, want := range []bool{true, false} {
		expectReport(t, pass(t, shop, "migrate", on...), map[string]any{"migrated": want})
	}
	expectReport(t, pass(t, shop, "migrate"), map[string]any{"migrated": false})
	if _, err := shop.DB.Exec(t.Context(), meteredSQL); err != nil {
		t.Fatal(err)
	}
	expectReport(t, pass(t, shop, "purge"), map[string]any{"command_keys": nil})
	expectReport(t, pass(t, shop, "purge", on...), map[string]any{"command_keys": 3.})
	if n := shop.Int(`SELECT count(*) FROM command_keys WHERE created_at > clock_timestamp() - interval '150 minutes'`); n != 2 {
		t.Errorf("%d keys are left, want the two young ones", n)
	}
}

// A checkout whose payment service answers, and one whose deadline has passed,
// are ended by a recovery, and then purged.
func TestRecoverCheckouts(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	shop.Stock("shirt", 5)
	shop.Admit("shirt", 3)
	pass(t, shop, "drain")
	payments := programtest.ServePayments(t, func(programtest.PaymentCall) (int, string) { return 200, `{"result":"paid"}` })
	paid, late, waiting := shop.BeginCheckout("cart-shirt-0", payments.URL), shop.BeginCheckout("cart-shirt-1", ""), shop.BeginCheckout("cart-shirt-2", "")
	shop.Int(`WITH x AS (UPDATE checkouts SET deadline = created_at, next_attempt_at = created_at WHERE cart_id = 'cart-shirt-1' RETURNING 1) SELECT count(*) FROM x`)
	env := []string{"CHECKOUT_CALLBACK_SECRET", programtest.CallbackSecret, "CHECKOUT_CALLBACK_PRIVATE", "true"}
	report := pass(t, shop, "recover", env...)
	want := map[string]any{"asked_late": 0., "claimed": 2., "committed": 1., "compensated": 1., "failed": 0., "pending": 0., "errors": 0., "more": false}
	expectReport(t, report, map[string]any{"checkouts": want, "more": false})
	for id, status := range map[uuid.UUID]checkouts.Status{
		paid.CheckoutID: checkouts.Committed, late.CheckoutID: checkouts.Compensated, waiting.CheckoutID: checkouts.Validating,
	} {
		if c := shop.Checkout(id); c.Status != status {
			t.Errorf("the checkout of %s is %s, want %s", c.CartID, c.Status, status)
		}
	}
	shop.Verify()
	shop.Int(`WITH x AS (UPDATE checkouts SET ended_at = ended_at - interval '8 days' RETURNING 1) SELECT count(*) FROM x`)
	expectReport(t, pass(t, shop, "purge"), map[string]any{"checkouts": 2.})
}
