package checkouts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
)

// A checkout begins at READ COMMITTED only, and is answered at every level.
func TestLevels(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 9)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		cart := string(level)
		s.hold(cart, "shoe", 1)
		in := func(do func(tx pgx.Tx) error) error {
			return pgx.BeginTxFunc(t.Context(), s.DB, pgx.TxOptions{IsoLevel: level}, do)
		}
		if err := in(func(tx pgx.Tx) error {
			_, err := checkouts.BeginTx(t.Context(), tx, s.start(cart), s.config)
			return err
		}); !errors.Is(err, inventory.ErrIsolation) {
			t.Errorf("%s: begin: %v", level, err)
		}
		c := s.begin(cart)
		s.Must(in(func(tx pgx.Tx) error {
			_, err := checkouts.AnswerTx(t.Context(), tx, s.payment(c.CheckoutID, checkouts.ResultPaid))
			return err
		}))
		s.wantCheckout(c.CheckoutID, checkouts.Finalizing, "", "")
	}
	if report := s.recover(nil); report.Committed != 2 {
		t.Errorf("%+v", report)
	}
	s.sound()
}

// A payment is recorded while another transaction has the stock locked. From
// then on the holds are kept for the commit.
func TestPaidWhileTheStockIsLocked(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stock("shoe", 9)
	s.hold("a", "shoe", 1)
	c := s.begin("a")
	locked, err := s.DB.Begin(t.Context())
	s.Must(err)
	_, err = locked.Exec(t.Context(), `SELECT FROM inventory_stocks FOR UPDATE`)
	s.Must(err)
	s.recordPaid(c)
	s.Must(locked.Rollback(t.Context()))
	s.wantCheckout(c.CheckoutID, checkouts.Finalizing, "", "")
	holds, err := checkouts.Holds(t.Context(), s.DB, s.tenant, c.CheckoutID)
	s.Must(err)
	if kept := holds[0].ExpiresAt.Sub(c.CreatedAt); kept < checkouts.KeptFor || kept > checkouts.KeptFor+time.Minute {
		t.Errorf("the hold is kept for %s, want %s", kept, checkouts.KeptFor)
	}
}
