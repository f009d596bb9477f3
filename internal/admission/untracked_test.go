package admission_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// A cart holds units of a variant that is then made digital. A new quantity
// releases them, whichever way the request takes, and a checkout commits
// nothing.
func TestNewQuantityOnceUntracked(t *testing.T) {
	t.Parallel()
	drained := func(b *testkit.Fixture) requests.Request {
		r := b.SubmitAs(set("a", "shoe", 1))
		if r.Status != requests.Queued {
			b.TB.Errorf("it is %s, want queued", r.Status)
		}
		b.TickUntil(b.Lane(queues.LaneConfig{}), r)
		return r
	}
	direct := func(b *testkit.Fixture) requests.Request {
		b.Decider = b.NewDecider(queues.DrainConfig{})
		in := b.Intake(admission.IntakeConfig{Decider: b.Decider, Load: queues.NewLoad(b.DB).Read})
		b.Settle(in)
		return b.SubmitDirect(in, set("a", "shoe", 1)).Request
	}
	inTx := func(b *testkit.Fixture) (r requests.Request) {
		s := set("a", "shoe", 1)
		s.TenantID, s.RequestID = b.Tenant, requestrows.NewID()
		pgtest.Must(t, pgx.BeginFunc(b.TB.Context(), b.DB, func(tx pgx.Tx) (err error) {
			r, err = admission.SubmitTx(b.TB.Context(), tx, b.Inserter, s)
			return err
		}))
		b.TickUntil(b.Lane(queues.LaneConfig{}), r)
		return r
	}
	for name, c := range map[string]struct {
		fixture func(testing.TB) *testkit.Fixture
		send    func(*testkit.Fixture) requests.Request
	}{
		"drain, normal lane":  {newNormal, drained},
		"drain, hot lane":     {newHot, drained},
		"direct, normal lane": {newNormal, direct},
		"direct, hot lane":    {newHot, direct},
		"transaction, normal": {newNormal, inTx},
		"transaction, hot":    {newHot, inTx},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := c.fixture(t)
			b.Stock("shoe", 10)
			held := b.SubmitAs(add("a", "shoe", ""))
			b.TickUntil(b.Lane(queues.LaneConfig{}), held)
			b.Exec(`UPDATE inventory_stocks SET tracked = false WHERE variant_id = 'shoe'`)
			b.Want(c.send(b), requests.Done, "")
			if n := b.Int(`SELECT count(*) FROM reservations WHERE status = 'released' AND release_reason = 'replaced'`); n != 1 {
				t.Errorf("%d holds are released, want the one", n)
			}
			if n := b.Int(`SELECT count(*) FROM reservations`) + b.Int(`SELECT reserved FROM inventory_stocks`); n != 1 {
				t.Errorf("%d holds and reserved units, want the released hold only", n)
			}
			if n := b.Int(`SELECT count(*) FROM audit_log WHERE action = 'reservation.released' AND target_id = $1`, held.RequestID); n != 1 {
				t.Errorf("%d audit rows of the release, want 1", n)
			}
			again := b.SubmitAs(set("a", "shoe", 2)) // there is nothing to release
			b.TickUntil(b.Lane(queues.LaneConfig{}), again)
			b.Want(again, requests.Done, "")
		})
	}
}

// What is locked to a checkout stays, and the new quantity is cancelled.
func TestNewQuantityOnceUntrackedInACheckout(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 10)
	held := b.SubmitAs(add("a", "shoe", ""))
	b.TickUntil(b.Lane(queues.LaneConfig{}), held)
	b.Exec(`UPDATE reservations SET checkout_id = gen_random_uuid()`)
	b.Exec(`UPDATE inventory_stocks SET tracked = false WHERE variant_id = 'shoe'`)
	r := b.SubmitAs(set("a", "shoe", 5))
	b.TickUntil(b.Lane(queues.LaneConfig{}), r)
	b.Want(r, requests.Failed, requests.Cancelled)
	if n := b.Int(`SELECT count(*) FROM reservations WHERE status = $1`, reservations.Held); n != 1 {
		t.Errorf("%d holds, want the one of the checkout", n)
	}
}
