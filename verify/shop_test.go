package verify_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// shop is a database that the service filled: two tenants used every verb in
// both lanes.
type shop struct {
	t        *testing.T
	db       *pgxpool.Pool
	inserter *queues.WakeInserter
	intake   *admission.Intake
	lanes    []*queues.Lane
	tenants  [2]uuid.UUID
	quiet    []time.Time // when no transaction was open
}

var clerk = audit.Origin{Actor: audit.User("hf_clerk0"), CorrelationID: "c-1"}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{t: t, db: pgtest.New(t), tenants: [2]uuid.UUID{uuid.New(), uuid.New()}}
	_, err := s.db.Exec(t.Context(), `INSERT INTO audit_log (tenant_id, target_id, created_at, action, actor_kind, after)
		VALUES ($1, $1, clock_timestamp() - interval '90 seconds', 'lane.promoted', 'system', '{}')`, uuid.New()) // the service has worked for a while
	s.must(err)
	s.inserter, err = queues.NewWakeInserter(s.db)
	s.must(err)
	s.intake, err = admission.NewIntake(s.db, s.inserter, admission.IntakeConfig{})
	s.must(err)
	fast, err := hot.NewLane(s.db, slog.New(slog.DiscardHandler), queues.LaneConfig{})
	s.must(err)
	slow, err := normal.NewLane(s.db, slog.New(slog.DiscardHandler), queues.LaneConfig{})
	s.must(err)
	s.lanes = []*queues.Lane{fast, slow}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.intake.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return s
}

func (s *shop) must(err error) {
	s.t.Helper()
	pgtest.Must(s.t, err)
}

func (s *shop) set(tenant uuid.UUID, variant string, patch inventory.StockPatch) {
	s.t.Helper()
	_, err := inventory.Set(s.t.Context(), s.db, tenant, variant, patch, clerk)
	s.must(err)
}

// ask submits one request and returns its id.
func (s *shop) ask(tenant uuid.UUID, kind requests.Kind, cart, variant string, quantity int32) uuid.UUID {
	s.t.Helper()
	id := requestrows.NewID()
	_, err := s.intake.Submit(s.t.Context(), requestrows.Submission{
		TenantID: tenant, RequestID: id, Kind: kind, CartID: cart, VariantID: variant, Quantity: quantity,
		IdempotencyKey: "key-" + id.String(), CorrelationID: "c-" + cart,
	})
	s.must(err)
	return id
}

// retry retries a failed request.
func (s *shop) retry(tenant, failed uuid.UUID) {
	s.t.Helper()
	again, err := requestrows.Retry(s.t.Context(), s.db, tenant, failed)
	s.must(err)
	_, err = s.intake.Submit(s.t.Context(), again)
	s.must(err)
}

// drain makes both lanes decide the queued requests.
func (s *shop) drain() {
	s.t.Helper()
	for undecided := 1; undecided > 0; {
		for _, lane := range s.lanes {
			_, err := lane.Tick(s.t.Context())
			s.must(err)
		}
		s.must(s.db.QueryRow(s.t.Context(), `SELECT count(*) FROM reservation_requests WHERE status = 'queued'`).Scan(&undecided))
	}
	var now time.Time
	s.must(s.db.QueryRow(s.t.Context(), `SELECT clock_timestamp()`).Scan(&now))
	s.quiet = append(s.quiet, now)
}

// trade makes requests of every outcome and reservations of every ending.
func (s *shop) trade() {
	s.t.Helper()
	ctx := s.t.Context()
	for i, tenant := range s.tenants {
		s.stockUp(tenant)
		var buyers sync.WaitGroup
		for n := range 60 {
			buyers.Go(func() {
				s.askUnits(tenant, n)
				for j, variant := range []string{"ring", "hat", "ebook", "sofa", "nobody-sells-this", "flip"} {
					if (n+j)%3 != 0 || variant == "ring" {
						s.ask(tenant, requests.Add, fmt.Sprint("cart-", n), variant, int32(1+n%2))
					}
				}
			})
		}
		buyers.Wait()
		s.drain()
		s.set(tenant, "flip", inventory.StockPatch{Tracked: new(i == 0)})
		s.ask(tenant, requests.Set, "cart-1", "hat", 3)
		failed := s.ask(tenant, requests.Set, "cart-2", "ring", 100) // more than the stock: the old hold stays
		s.ask(tenant, requests.Add, "cart-new", "hat", 2)
		s.ask(tenant, requests.Set, "cart-new", "hat", 1) // decided in the same drain
		s.ask(tenant, requests.Add, "cart-flip", "flip", 1)
		brief := s.ask(tenant, requests.Add, "cart-late", "candle", 1)
		s.drain()
		s.retry(tenant, failed)
		s.drain()
		s.after(tenant)
		s.await(`SELECT expires_at <= clock_timestamp() FROM reservations WHERE tenant_id = $1 AND reservation_id = $2`, tenant, brief)
		if i == 0 {
			_, err := inventory.ExpireDue(ctx, s.db, 100)
			s.must(err)
			continue
		}
		s.ask(tenant, requests.Set, "cart-later", "candle", 1) // takes the units of the due hold
		s.drain()
	}
	s.ask(s.tenants[0], requests.Add, "cart-open", "hat", 1) // still queued
}

// askUnits asks for units of the hall: two of any, two neighbours, or two by
// name.
func (s *shop) askUnits(tenant uuid.UUID, n int) {
	s.t.Helper()
	var units *requests.Units
	switch n % 3 {
	case 1:
		units = &requests.Units{Contiguous: true}
	case 2:
		units = &requests.Units{IDs: []string{fmt.Sprint("seat-", n%30), fmt.Sprint("seat-", (n+7)%30)}}
	}
	_, err := s.intake.Submit(s.t.Context(), requestrows.Submission{
		TenantID: tenant, CartID: fmt.Sprint("cart-", n), VariantID: "hall", Quantity: 2, Units: units,
		IdempotencyKey: fmt.Sprint("units-", n),
	})
	s.must(err)
}

func (s *shop) stockUp(tenant uuid.UUID) {
	s.t.Helper()
	seats := make([]inventory.NewUnit, 130)
	for i := range seats {
		seats[i].UnitID = fmt.Sprint("seat-", i)
	}
	s.must(pgx.BeginFunc(s.t.Context(), s.db, func(tx pgx.Tx) error {
		_, err := inventory.AddUnitsTx(s.t.Context(), tx, tenant, "hall", seats, clerk)
		return err
	}))
	s.set(tenant, "ring", inventory.StockPatch{Stock: new(int64(20)), MaxPerCart: new(int32(10))})
	s.must(lanes.Pin(s.t.Context(), s.db, s.inserter, tenant, "ring"))
	s.set(tenant, "hat", inventory.StockPatch{Stock: new(int64(80))})
	s.set(tenant, "sofa", inventory.StockPatch{Stock: new(int64(5)), Backorder: new(true)})
	s.set(tenant, "ebook", inventory.StockPatch{Tracked: new(false)})
	s.set(tenant, "flip", inventory.StockPatch{Tracked: new(false), Stock: new(int64(50))})
	s.set(tenant, "candle", inventory.StockPatch{Stock: new(int64(1)), HoldTTLSeconds: new(int32(1))})
}

// after is what carts do once they have holds.
func (s *shop) after(tenant uuid.UUID) {
	s.t.Helper()
	ctx := s.t.Context()
	checkedOut := 0
	for n := 3; n < 12; n++ {
		_, err := carts.Checkout(ctx, s.db, tenant, fmt.Sprint("cart-", n), clerk)
		if err == nil {
			checkedOut++
		} else if !errors.Is(err, inventory.ErrCartEmpty) {
			s.t.Fatal(err)
		}
	}
	if checkedOut == 0 {
		s.t.Fatal("no cart could be checked out")
	}
	s.checkouts(tenant)
	s.ask(tenant, requests.Add, "cart-20", "hat", 1)
	_, err := carts.Remove(ctx, s.db, tenant, "cart-20", "", reservations.CartRemoved, clerk)
	s.must(err)
	held, err := reservationrows.ByHolder(ctx, s.db, tenant, inventory.Kind, "cart-1", uuid.Max, 100)
	s.must(err)
	for _, r := range held {
		if r.Status == reservations.Held {
			_, err := inventory.Extend(ctx, s.db, tenant, r.ReservationID, time.Minute, 2*time.Hour, clerk)
			s.must(err)
		}
	}
	_, err = inventory.Adjust(ctx, s.db, tenant, "hat", 2, clerk)
	s.must(err)
}

// checkouts makes checkouts of every status: cart-12 is committed, cart-13
// compensated, cart-14 paid too late, and cart-15 still unfinished.
func (s *shop) checkouts(tenant uuid.UUID) {
	s.t.Helper()
	ctx := s.t.Context()
	for cart, results := range map[string][]checkouts.Result{
		"cart-12": {checkouts.ResultPaid}, "cart-13": {checkouts.ResultFailed},
		"cart-14": {checkouts.ResultFailed, checkouts.ResultPaid}, "cart-15": nil,
	} {
		start := checkouts.Start{TenantID: tenant, CartID: cart, PaymentReference: "order", Origin: clerk}
		begun, err := checkouts.Begin(ctx, s.db, start, checkouts.Config{})
		s.must(err)
		for i, result := range results {
			payment := checkouts.Payment{TenantID: tenant, CheckoutID: begun.CheckoutID, Result: result, Origin: clerk}
			_, err := checkouts.Answer(ctx, s.db, payment, checkouts.Config{Log: slog.New(slog.DiscardHandler)})
			if i == 0 {
				s.must(err)
			}
		}
	}
}

// await polls until a condition holds.
func (s *shop) await(sql string, args ...any) {
	s.t.Helper()
	pgtest.Until(s.t, sql, func() (holds bool) {
		s.must(s.db.QueryRow(s.t.Context(), sql, args...).Scan(&holds))
		return holds
	})
}

// count returns the number that a query selects.
func (s *shop) count(sql string, args ...any) int {
	s.t.Helper()
	return int(pgtest.Int(s.t, s.db, sql, args...))
}
