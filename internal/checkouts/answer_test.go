package checkouts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/reservations"
)

// bring brings a new checkout of two shoes into the named state.
var bring = map[string]func(s *fixture, c checkouts.Checkout){
	"validating": func(*fixture, checkouts.Checkout) {},
	"late":       func(s *fixture, c checkouts.Checkout) { s.late(c.CheckoutID) },
	"finalizing": func(s *fixture, c checkouts.Checkout) {
		s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
			_, err := checkouts.AnswerTx(s.TB.Context(), tx, s.payment(c.CheckoutID, checkouts.ResultPaid))
			return err
		}))
	},
	"committed": func(s *fixture, c checkouts.Checkout) {
		_, err := s.answer(c.CheckoutID, checkouts.ResultPaid)
		s.Must(err)
	},
	"compensated": func(s *fixture, c checkouts.Checkout) {
		_, err := s.answer(c.CheckoutID, checkouts.ResultFailed)
		s.Must(err)
	},
	"lost": func(s *fixture, c checkouts.Checkout) {
		s.lapse(c.CheckoutID)
		s.sweep()
	},
	"failed": func(s *fixture, c checkouts.Checkout) {
		s.lapse(c.CheckoutID)
		if _, err := s.answer(c.CheckoutID, checkouts.ResultPaid); err == nil {
			s.TB.Error("a checkout without its holds was committed")
		}
	},
}

// Every answer in every state has a documented ending. The second answer is the
// same as the first, and raises no second alert.
func TestAnswer(t *testing.T) {
	t.Parallel()
	type ending struct {
		conflict checkouts.Status // of the *ConflictError, "" for none
		raised   checkouts.Alert
		status   checkouts.Status
		reason   checkouts.Reason
		alert    checkouts.Alert
		again    checkouts.Status // of the conflict of the repeated answer
		stock    int64
	}
	const paid, failed = checkouts.ResultPaid, checkouts.ResultFailed
	for _, c := range []struct {
		state  string
		result checkouts.Result
		ending
	}{
		{"validating", paid, ending{"", "", checkouts.Committed, "", "", checkouts.Committed, 3}},
		{"validating", failed, ending{"", "", checkouts.Compensated, checkouts.PaymentFailed, "", checkouts.Compensated, 5}},
		{"late", paid, ending{checkouts.Compensated, checkouts.PaidTooLate, checkouts.Compensated, checkouts.PaymentTimeout, checkouts.PaidTooLate, checkouts.Compensated, 5}},
		{"late", failed, ending{"", "", checkouts.Compensated, checkouts.PaymentFailed, "", checkouts.Compensated, 5}},
		{"finalizing", paid, ending{"", "", checkouts.Committed, "", "", checkouts.Committed, 3}},
		{"finalizing", failed, ending{checkouts.Finalizing, "", checkouts.Finalizing, "", "", checkouts.Finalizing, 5}},
		{"committed", paid, ending{checkouts.Committed, "", checkouts.Committed, "", "", checkouts.Committed, 3}},
		{"committed", failed, ending{checkouts.Committed, "", checkouts.Committed, "", "", checkouts.Committed, 3}},
		{"compensated", paid, ending{checkouts.Compensated, checkouts.PaidTooLate, checkouts.Compensated, checkouts.PaymentFailed, checkouts.PaidTooLate, checkouts.Compensated, 5}},
		{"compensated", failed, ending{checkouts.Compensated, "", checkouts.Compensated, checkouts.PaymentFailed, "", checkouts.Compensated, 5}},
		{"lost", paid, ending{checkouts.Failed, "", checkouts.Failed, checkouts.LostStock, checkouts.StockLost, checkouts.Failed, 5}},
		{"lost", failed, ending{"", "", checkouts.Compensated, checkouts.PaymentFailed, "", checkouts.Compensated, 5}},
		{"failed", paid, ending{checkouts.Failed, "", checkouts.Failed, checkouts.LostStock, checkouts.StockLost, checkouts.Failed, 5}},
		{"failed", failed, ending{checkouts.Failed, "", checkouts.Failed, checkouts.LostStock, checkouts.StockLost, checkouts.Failed, 5}},
	} {
		t.Run(c.state+" "+string(c.result), func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.stock("shoe", 5)
			s.hold("a", "shoe", 2)
			begun := s.begin("a")
			bring[c.state](s, begun)
			after, err := s.answer(begun.CheckoutID, c.result)
			if c.conflict == "" {
				s.Must(err)
			} else if conflict := s.conflict(err); conflict.Status != c.conflict || conflict.Raised != c.raised || conflict.CheckoutID != begun.CheckoutID {
				t.Errorf("conflict %+v, want %s, raised %q", conflict, c.conflict, c.raised)
			}
			if after.Status != c.status {
				t.Errorf("returned as %s, want %s", after.Status, c.status)
			}
			s.wantCheckout(begun.CheckoutID, c.status, c.reason, c.alert)
			_, err = s.answer(begun.CheckoutID, c.result)
			if conflict := s.conflict(err); conflict.Status != c.again || conflict.Raised != "" {
				t.Errorf("repeated: %+v", conflict)
			}
			s.wantCheckout(begun.CheckoutID, c.status, c.reason, c.alert)
			if n := s.Int(`SELECT count(*) FROM audit_log WHERE action = 'checkout.alert'`); n != count(c.alert != "") {
				t.Errorf("%d alerts are recorded", n)
			}
			if n := s.log.errors(string(c.alert)); c.alert != "" && n != 1 {
				t.Errorf("%d alerts are logged", n)
			}
			s.wantStock("shoe", c.stock, count(c.status == checkouts.Finalizing)*2)
			s.sound()
		})
	}
}

func count(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

func TestAnswerRefused(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 5)
	s.hold("a", "shoe", 2)
	c := s.begin("a")
	_, err := s.answer(c.CheckoutID, "settled")
	if invalid, ok := errors.AsType[*inventory.InvalidError](err); !ok || invalid.Field != "result" {
		t.Errorf("%v, want the field result", err)
	}
	if conflict := (&checkouts.ConflictError{CheckoutID: c.CheckoutID, Status: checkouts.Failed}).Error(); !strings.Contains(conflict, "failed") {
		t.Error(conflict)
	}
	s.wantCheckout(c.CheckoutID, checkouts.Validating, "", "")
}

// A checkout that was paid and has lost a part of its holds releases the others
// and gets the alert, however the part was lost.
func TestLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(s *fixture){
		"due": func(s *fixture) {
			s.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE resource_key = 'shoe'`)
		},
		"expired": func(s *fixture) {
			s.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE resource_key = 'shoe'`)
			s.sweep()
		},
		"of another checkout": func(s *fixture) {
			s.Exec(`UPDATE reservations SET checkout_id = gen_random_uuid() WHERE resource_key = 'shoe'`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.stock("shoe", 5)
			s.seats("hall", 3)
			s.hold("a", "shoe", 2)
			s.hold("a", "hall", 3)
			c := s.begin("a")
			bring["finalizing"](s, c)
			lose(s)
			if conflict := s.conflict(second(s.answer(c.CheckoutID, checkouts.ResultPaid))); conflict.Status != checkouts.Failed {
				t.Errorf("%+v", conflict)
			}
			s.wantCheckout(c.CheckoutID, checkouts.Failed, checkouts.LostStock, checkouts.StockLost)
			s.wantStock("hall", 3, 0)
			s.hold("b", "hall", 3)
			if n := s.log.errors(string(checkouts.StockLost)); n != 1 {
				t.Errorf("%d alerts are logged", n)
			}
			s.sound()
		})
	}
}

func second[A any](_ A, err error) error { return err }

// A checkout whose holds are already committed, as in a database that was
// repaired by hand, is recorded as committed, and nothing is committed twice.
func TestCommittedBefore(t *testing.T) {
	t.Parallel()
	for name, variants := range map[string][]string{"all": {"shoe", "sock"}, "some": {"shoe"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newFixture(t)
			s.stock("shoe", 5)
			s.stock("sock", 5)
			s.hold("a", "shoe", 2)
			s.hold("a", "sock", 2)
			c := s.begin("a")
			bring["finalizing"](s, c)
			s.Exec(`UPDATE reservations SET status = 'committed', ended_at = clock_timestamp() WHERE resource_key = ANY ($1)`, variants)
			s.Exec(`UPDATE inventory_stocks SET stock = stock - 2, reserved = reserved - 2 WHERE variant_id = ANY ($1)`, variants)
			if report := s.recover(nil); report.Committed != 1 {
				t.Errorf("%+v", report)
			}
			s.wantCheckout(c.CheckoutID, checkouts.Committed, "", "")
			s.wantHolds(c.CheckoutID, reservations.Committed)
			s.wantStock("shoe", 3, 0)
			s.wantStock("sock", 3, 0)
		})
	}
}

// Expiry, the end of the checkout's time and the answers of the payment happen
// to one checkout in every order. Each order has a documented ending: a payment
// that was reported is committed, or it has an alert; without one, the units
// are free.
func TestEveryOrder(t *testing.T) {
	t.Parallel()
	events := map[string]func(s *fixture, c checkouts.Checkout){
		"paid":     func(s *fixture, c checkouts.Checkout) { _, _ = s.answer(c.CheckoutID, checkouts.ResultPaid) },
		"recorded": func(s *fixture, c checkouts.Checkout) { s.recordPaid(c) },
		"failed":   func(s *fixture, c checkouts.Checkout) { _, _ = s.answer(c.CheckoutID, checkouts.ResultFailed) },
		"deadline": func(s *fixture, c checkouts.Checkout) { s.late(c.CheckoutID) },
		"expiry":   func(s *fixture, c checkouts.Checkout) { s.lapse(c.CheckoutID); s.sweep() },
		"due":      func(s *fixture, c checkouts.Checkout) { s.lapse(c.CheckoutID) },
		"rival": func(s *fixture, _ checkouts.Checkout) {
			_, _, err := s.tryHold(s.TB.Context(), "rival", "hall", 2)
			s.Must(err)
		},
		"recovery": func(s *fixture, _ checkouts.Checkout) { s.recover(nil) },
	}
	sets := [][]string{
		{"paid", "deadline", "expiry", "recovery"}, {"paid", "failed", "deadline", "recovery"}, {"paid", "due", "rival", "recovery"},
		{"recorded", "expiry", "recovery", "failed"}, {"recorded", "due", "rival", "paid"}, {"deadline", "expiry", "failed", "paid"},
	}
	db := newFixture(t).DB
	for _, set := range sets {
		for _, order := range permutations(set) {
			t.Run(strings.Join(order, " "), func(t *testing.T) {
				s := shopOn(t, db)
				s.seats("hall", 3)
				s.hold("a", "hall", 2)
				c := s.begin("a")
				for _, event := range order {
					events[event](s, c)
				}
				s.late(c.CheckoutID)
				s.recover(nil)
				s.sound()
				paid := slices.Contains(order, "paid") || slices.Contains(order, "recorded")
				switch got := s.get(c.CheckoutID); {
				case !got.Status.Ended():
					t.Errorf("it has not ended: %+v", got)
				case paid && got.Status != checkouts.Committed && got.Alert == "":
					t.Errorf("paid, %s without an alert", got.Status)
				case !paid && (got.Status != checkouts.Compensated || got.Alert != ""):
					t.Errorf("not paid, but %+v", got)
				case got.Status == checkouts.Committed:
					s.wantHolds(c.CheckoutID, reservations.Committed)
				}
			})
		}
	}
}

// recordPaid is the first transaction of an answer, whose process then dies.
func (s *fixture) recordPaid(c checkouts.Checkout) {
	s.TB.Helper()
	tx, err := s.DB.Begin(s.TB.Context())
	s.Must(err)
	_, err = checkouts.AnswerTx(s.TB.Context(), tx, s.payment(c.CheckoutID, checkouts.ResultPaid))
	s.Must(err)
	s.Must(tx.Commit(s.TB.Context()))
}

// permutations returns the items in every order.
func permutations(items []string) (all [][]string) {
	if len(items) == 0 {
		return [][]string{nil}
	}
	for i := range items {
		rest := slices.Delete(slices.Clone(items), i, i+1)
		for _, order := range permutations(rest) {
			all = append(all, append([]string{items[i]}, order...))
		}
	}
	return all
}
