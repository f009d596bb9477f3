package reservations_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/reservations"
)

// goods have a stock in a table. A committed unit is taken out of it in the
// same transaction.
type goods struct {
	reservations.HeldOnly[string, reservations.NoWindow]
	// after is called after each call of Held or Capacity, with the number of
	// calls so far.
	after func(calls int64)
	calls *atomic.Int64
}

func (g goods) Capacity(ctx context.Context, tx pgx.Tx, _ uuid.UUID, name string, _ reservations.NoWindow) (stock int64, err error) {
	err = tx.QueryRow(ctx, `SELECT stock FROM goods WHERE name = $1`, name).Scan(&stock)
	g.after(g.calls.Add(1))
	return stock, err
}

func (g goods) Held(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, name string, window reservations.NoWindow) (int64, error) {
	held, err := g.HeldOnly.Held(ctx, tx, tenantID, name, window)
	g.after(g.calls.Add(1))
	return held, err
}

// shop is a house that sells goods.
type shop struct {
	*house
	goods *reservations.Kernel[string, reservations.NoWindow]
}

// newShop makes a shop. after is called whenever the kernel has read the stock.
func newShop(t *testing.T, after func(s *shop, calls int64)) *shop {
	t.Helper()
	s := &shop{house: newHouse(t)}
	s.Exec(`CREATE TABLE goods (name text PRIMARY KEY, stock bigint NOT NULL)`)
	resource := goods{HeldOnly: "shop.goods", after: func(calls int64) { after(s, calls) }, calls: &atomic.Int64{}}
	s.goods = kernelOf(s.house, resource, reservations.Config{})
	return s
}

func (s *shop) put(name string, stock int64) {
	s.TB.Helper()
	s.Exec(`INSERT INTO goods VALUES ($1, $2)`, name, stock)
}

func (s *shop) hold(name string, quantity int64, ttl time.Duration) (*reservations.Handle, error) {
	return s.goods.Hold(s.TB.Context(), s.by, name, all, reservations.HoldOpts{Quantity: quantity, TTL: ttl})
}

// sellTx commits a hold and takes its units out of the stock.
func (s *shop) sellTx(tx pgx.Tx, name string, handle *reservations.Handle) error {
	sold, err := s.goods.CommitTx(s.TB.Context(), tx, s.by, handle)
	if err != nil {
		return err
	}
	const takeSQL = `UPDATE goods SET stock = stock - $2 WHERE name = $1`
	_, err = tx.Exec(s.TB.Context(), takeSQL, name, sold.Quantity)
	return err
}

func (s *shop) sell(name string, handle *reservations.Handle) error {
	return s.in(func(tx pgx.Tx) error { return s.sellTx(tx, name, handle) })
}

// room is the stock minus the held units.
func (s *shop) room(name string) int64 {
	s.TB.Helper()
	return s.Int(`SELECT stock - (SELECT coalesce(sum(quantity), 0) FROM reservations
	                             WHERE resource_kind = 'shop.goods' AND resource_key = to_json($1::text)::text AND status = 'held')
	              FROM goods WHERE name = $1`, name)
}

// Each of 64 buyers of 20 units holds one and buys it at once. Every buyer
// after the first twenty is rejected, and the stock ends at 0.
func TestStockEndsAtZero(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(*shop, int64) {})
	s.hasty()
	for round := range 30 {
		name := fmt.Sprint("book ", round)
		s.put(name, 20)
		var sold, rejected atomic.Int64
		var buyers sync.WaitGroup
		for range 64 {
			buyers.Go(func() {
				handle, err := s.hold(name, 1, time.Minute)
				if _, ok := errors.AsType[*reservations.InsufficientError](err); ok {
					rejected.Add(1)
					return
				}
				if err == nil {
					err = s.sell(name, handle)
				}
				if err != nil {
					t.Error(err)
					return
				}
				sold.Add(1)
			})
		}
		buyers.Wait()
		if stock := s.Int(`SELECT stock FROM goods WHERE name = $1`, name); stock != 0 || sold.Load() != 20 || rejected.Load() != 44 {
			t.Fatalf("round %d: stock %d, %d sold, %d rejected, want 0, 20 and 44", round, stock, sold.Load(), rejected.Load())
		}
	}
}

// Another process confirms the payment. It has only the hold's id, and takes
// the number of units in the row out of the stock.
func TestSoldByName(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(*shop, int64) {})
	s.put("book", 5)
	first, err := s.hold("book", 3, time.Hour)
	s.Must(err)
	named := s.goods.Handle(s.tenant, first.ID())
	if r, ok := named.Reservation(); ok || r.ReservationID != uuid.Nil {
		t.Errorf("a handle that read nothing has %+v", r)
	}
	s.Must(s.sell("book", named))
	if stock := s.Int(`SELECT stock FROM goods`); stock != 2 {
		t.Errorf("stock %d, want 2", stock)
	}
	_, err = s.hold("book", 3, time.Hour)
	s.wantInsufficient(err, 3, 2, 2)
}

// A unit is sold, or released, right after another hold has read the stock for
// the first or the second time. That hold is made if and only if enough units
// are available, and a rejection has the correct numbers.
func TestStockMovesBetweenReadings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stock, quantity int64 // one unit of the stock is units held before
		sold            bool  // whether they are sold; else released
		want            string
		room            int64
	}{
		"the last is sold":         {1, 1, true, "0 of 0 left", 0},
		"one of two is sold":       {2, 1, true, "done", 0},
		"one of two, two wanted":   {2, 2, true, "1 of 1 left", 1},
		"one of three, two wanted": {3, 2, true, "done", 0},
		"the last is released":     {1, 1, false, "done", 0},
		"one of three is released": {3, 3, false, "done", 0},
		"one is released too late": {2, 3, false, "2 of 2 left", 2},
	} {
		for reading := range int64(2) {
			t.Run(fmt.Sprintf("%s, after reading %d", name, reading+1), func(t *testing.T) {
				t.Parallel()
				var first *reservations.Handle
				var before int64
				s := newShop(t, func(s *shop, calls int64) {
					switch {
					case first == nil:
						before = calls // the calls made by the first hold
					case calls != before+reading+1:
					case c.sold:
						s.Must(s.sell("book", first))
					default:
						s.Must(failure(s.goods.Release(s.TB.Context(), s.by, first, reservations.Abandoned)))
					}
				})
				s.put("book", c.stock)
				handle, err := s.hold("book", 1, time.Hour)
				s.Must(err)
				first = handle
				_, err = s.hold("book", c.quantity, time.Hour)
				if got := errorText(err); got != c.want {
					t.Errorf("%s, want %s", got, c.want)
				}
				if room := s.room("book"); room != c.room {
					t.Errorf("room for %d, want %d", room, c.room)
				}
			})
		}
	}
}

// A hold that lacks units waits for a due hold that another transaction has
// sold before its deadline. After the wait, the stock that it read before is
// out of date.
func TestReclaimWaitsForSale(t *testing.T) {
	t.Parallel()
	s := newShop(t, func(*shop, int64) {})
	s.put("book", 1)
	first, err := s.hold("book", 1, 3*time.Second)
	s.Must(err)
	sale, end := s.session()
	s.Must(s.sellTx(sale, "book", first))
	s.until(`SELECT expires_at <= clock_timestamp() FROM reservations`)
	waited, over := s.behind(func(tx pgx.Tx) error {
		_, err := s.goods.HoldTx(t.Context(), tx, s.by, "book", all, reservations.HoldOpts{Quantity: 1, TTL: time.Hour})
		return err
	})
	if !waited {
		t.Error("the second hold did not wait for the sale")
	}
	end(nil)
	s.wantInsufficient(<-over, 1, 0, 0)
	if room := s.room("book"); room != 0 {
		t.Errorf("room for %d, want 0", room)
	}
}
