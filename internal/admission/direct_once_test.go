package admission_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
)

// A request that is decided directly is written once: its row has one version,
// whether it is done or failed.
func TestDirectDecisionWritesOneVersion(t *testing.T) {
	t.Parallel()
	b, config := newDeciding(t)
	b.Stock("shoe", 2)
	group := []requestrows.Submission{waiting("a", "shoe", "x"), waiting("b", "shoe", ""), waiting("c", "shoe", "y")}
	for i, a := range gather(t, b, config, group).run() {
		pgtest.Must(t, a.err)
		if diff := cmp.Diff(b.Get(a.request).Request, a.request); diff != "" {
			t.Errorf("request %d differs from what the caller received:\n%s", i, diff)
		}
	}
	rows, err := b.DB.Query(t.Context(), `SELECT ctid::text || ' ' || status FROM reservation_requests ORDER BY ctid`)
	pgtest.Must(t, err)
	versions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	pgtest.Must(t, err)
	if diff := cmp.Diff([]string{"(0,1) done", "(0,2) done", "(0,3) failed"}, versions); diff != "" {
		t.Errorf("the versions of the rows, -want +got:\n%s", diff)
	}
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.failed' AND before->>'status' = 'queued' AND after->>'reason' = 'out_of_stock'`); n != 1 {
		t.Errorf("%d audit rows of failed requests, want 1", n)
	}
	b.CheckInvariants()
}

// The failed request that a direct decision retries has its audit row, as it
// has without one. Only one request retries it.
func TestDirectDecisionOfRetry(t *testing.T) {
	t.Parallel()
	b, config := newDeciding(t)
	b.Stock("shoe", 0)
	in := b.Intake(config)
	failed := b.SubmitDirect(in, waiting("a", "shoe", ""))
	b.Exec(`UPDATE inventory_stocks SET stock = 5`)
	again := waiting("a", "shoe", "k")
	again.RetryOf = failed.RequestID
	retry := b.SubmitDirect(in, again)
	if failed.Status != requests.Failed || retry.Status != requests.Done {
		t.Errorf("the request is %s, its retry %s, want failed and done", failed.Status, retry.Status)
	}
	if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'request.retried' AND target_id = $1`, failed.RequestID); n != 1 {
		t.Errorf("%d audit rows of the retried request, want 1", n)
	}
	if v := b.SubmitDirect(in, again); v.RequestID != retry.RequestID {
		t.Errorf("repeated, the retry is %s, want %s", v.RequestID, retry.RequestID)
	}
	if n := b.Decider.Decided(); n != 2 {
		t.Errorf("%d were decided as they were admitted, want 2", n)
	}
}

// A caller whose key a call has in use waits for that call without the lock of
// the stock, so it delays no other decision.
func TestDirectDecisionWaitsForKeyWithoutTheStock(t *testing.T) {
	t.Parallel()
	b, config := newDeciding(t)
	b.Stock("shoe", 10)
	s := waiting("a", "shoe", "k")
	call, err := b.DB.Begin(t.Context())
	pgtest.Must(t, err)
	_, err = tenants.ClaimKeyTx(t.Context(), call, b.Tenant, "k", [32]byte{1})
	pgtest.Must(t, err)
	pgtest.Must(t, requestrows.ReserveKeyTx(t.Context(), call, b.Tenant, "k"))

	var caller sync.WaitGroup
	var received []answer
	crowd := gather(t, b, config, []requestrows.Submission{s})
	caller.Go(func() { received = crowd.run() })
	b.Until("the caller waits for the key", func() bool {
		return b.Int(`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid' AND datname = current_database()`) == 1 && b.Decider.Tried() == 1
	})
	b.Until("the stock is free", func() bool {
		return b.Int(`SELECT count(*) FROM (SELECT FROM inventory_stocks FOR UPDATE SKIP LOCKED) AS free`) == 1
	})
	pgtest.Must(t, call.Commit(t.Context()))
	caller.Wait()
	if !errors.Is(received[0].err, requestrows.ErrKeyReused) {
		t.Errorf("the key of another call: %+v, %v, want ErrKeyReused", received[0].view, received[0].err)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`) + b.Int(`SELECT reserved FROM inventory_stocks`); n != 0 {
		t.Errorf("%d requests and reserved units, want none", n)
	}
	next := b.SubmitDirect(b.Intake(config), waiting("b", "shoe", "l"))
	if next.Status != requests.Done {
		t.Errorf("the next request is %s, want done", next.Status)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.CheckInvariants()
}
