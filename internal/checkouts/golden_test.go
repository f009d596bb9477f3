package checkouts_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/pgtest"
)

var update = flag.Bool("update", false, "write the golden files again")

// The record is the event: there is one golden file per action of a checkout.
func TestEvents(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.seats("hall", 20)
	started := func(cart string) checkouts.Checkout {
		s.hold(cart, "hall", 2)
		return s.begin(cart)
	}
	committed, compensated, late, lost := started("a"), started("b"), started("c"), started("d")
	_, err := s.answer(committed.CheckoutID, checkouts.ResultPaid)
	s.Must(err)
	_, err = s.answer(compensated.CheckoutID, checkouts.ResultFailed)
	s.Must(err)
	s.late(late.CheckoutID)
	_, err = s.answer(late.CheckoutID, checkouts.ResultPaid)
	if conflict := s.conflict(err); conflict.Raised != checkouts.PaidTooLate {
		t.Errorf("%+v", conflict)
	}
	s.recordPaid(lost)
	s.lapse(lost.CheckoutID)
	s.recover(nil)
	written := map[string]uuid.UUID{
		checkouts.EventBegun: committed.CheckoutID, checkouts.EventPaid: committed.CheckoutID, checkouts.EventCommitted: committed.CheckoutID,
		checkouts.EventCompensated: compensated.CheckoutID, checkouts.EventFailed: lost.CheckoutID, checkouts.EventAlert: late.CheckoutID,
	}
	if n := s.Int(`SELECT count(DISTINCT action) FROM audit_log WHERE action LIKE 'checkout.%'`); int(n) != len(written) {
		t.Errorf("%d actions were recorded, %d have a golden file", n, len(written))
	}
	for action, target := range written {
		t.Run(action, func(t *testing.T) {
			records, err := audit.History(t.Context(), s.DB, s.tenant, target)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(records, func(r audit.Record) bool { return r.Action == action })
			if i < 0 {
				t.Fatalf("no such row among %d", len(records))
			}
			pgtest.Golden(t, action, records[i], *update)
		})
	}
}
