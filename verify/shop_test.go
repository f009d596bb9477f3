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

// fixture is a database that the service filled: two tenants used every verb in
// both lanes.
type fixture struct {
	pgtest.Fixture
	inserter *queues.WakeInserter
	intake   *admission.Intake
	lanes    []*queues.Lane
	tenants  [2]uuid.UUID
	quiet    []time.Time // when no transaction was open
}

var clerk = audit.Origin{Actor: audit.User("hf_clerk0"), CorrelationID: "c-1"}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{Fixture: pgtest.NewFixture(t), tenants: [2]uuid.UUID{uuid.New(), uuid.New()}}
	_, err := s.DB.Exec(t.Context(), `INSERT INTO audit_log (tenant_id, target_id, created_at, action, actor_kind, after)
		VALUES ($1, $1, clock_timestamp() - interval '90 seconds', 'lane.promoted', 'system', '{}')`, uuid.New()) // the service has worked for a while
	s.Must(err)
	s.inserter, err = queues.NewWakeInserter(s.DB)
	s.Must(err)
	s.intake, err = admission.NewIntake(s.DB, s.inserter, admission.IntakeConfig{})
	s.Must(err)
	fast, err := hot.NewLane(s.DB, slog.New(slog.DiscardHandler), queues.LaneConfig{})
	s.Must(err)
	slow, err := normal.NewLane(s.DB, slog.New(slog.DiscardHandler), queues.LaneConfig{})
	s.Must(err)
	s.lanes = []*queues.Lane{fast, slow}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.intake.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return s
}

func (s *fixture) set(tenant uuid.UUID, variant string, patch inventory.StockPatch) {
	s.TB.Helper()
	_, err := inventory.Set(s.TB.Context(), s.DB, tenant, variant, patch, clerk)
	s.Must(err)
}

// ask submits one request and returns its id.
func (s *fixture) ask(tenant uuid.UUID, kind requests.Kind, cart, variant string, quantity int32) uuid.UUID {
	s.TB.Helper()
	id := requestrows.NewID()
	_, err := s.intake.Submit(s.TB.Context(), requestrows.Submission{
		TenantID: tenant, RequestID: id, Kind: kind, CartID: cart, VariantID: variant, Quantity: quantity,
		IdempotencyKey: "key-" + id.String(), CorrelationID: "c-" + cart,
	})
	s.Must(err)
	return id
}

// moveStocks transfers units, and deletes a stock that is then made again.
func (s *fixture) moveStocks(tenant uuid.UUID) {
	s.TB.Helper()
	for _, stock := range []int64{3, 5} {
		s.set(tenant, "brief", inventory.StockPatch{Stock: &stock})
		s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
			_, _, err := inventory.TransferTx(s.TB.Context(), tx, tenant, "brief", "sofa", 2, clerk)
			return err
		}))
		s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error { return inventory.DeleteTx(s.TB.Context(), tx, tenant, "brief", clerk) }))
	}
	s.set(tenant, "brief", inventory.StockPatch{Stock: new(int64(1))})
}

// askLines submits requests of several lines: one that is decided at once, one
// that comes up short, and one with a hot variant that comes up short.
func (s *fixture) askLines(tenant uuid.UUID) {
	s.TB.Helper()
	sofa, hat, ring := requests.Line{VariantID: "sofa", Quantity: 1}, requests.Line{VariantID: "hat", Quantity: 2}, requests.Line{VariantID: "ring", Quantity: 100}
	s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
		_, err := inventory.SetKitTx(s.TB.Context(), tx, tenant, "outfit", []inventory.KitPart{{VariantID: "hat", Quantity: 2}, {VariantID: "ebook", Quantity: 1}, {VariantID: "sofa", Quantity: 1}}, clerk)
		return err
	}))
	outfit := requests.Lines{Items: []requests.Line{{KitID: "outfit", Quantity: 2}}}
	expanded, err := requestrows.ExpandKits(s.TB.Context(), s.DB, tenant, &outfit)
	s.Must(err)
	for _, lines := range [][]requests.Line{{sofa, hat}, {hat, {VariantID: "nobody-sells-this", Quantity: 1}}, {hat, ring}, expanded.Items} {
		_, err := s.intake.Submit(s.TB.Context(), requestrows.Submission{
			TenantID: tenant, Kind: requests.Several, CartID: "cart-lines", Lines: &requests.Lines{Items: lines},
		})
		s.Must(err)
	}
}

// retry retries a failed request.
func (s *fixture) retry(tenant, failed uuid.UUID) {
	s.TB.Helper()
	again, err := requestrows.Retry(s.TB.Context(), s.DB, tenant, failed)
	s.Must(err)
	_, err = s.intake.Submit(s.TB.Context(), again)
	s.Must(err)
}

// drain makes both lanes decide the queued requests.
func (s *fixture) drain() {
	s.TB.Helper()
	for undecided := 1; undecided > 0; {
		for _, lane := range s.lanes {
			_, err := lane.Tick(s.TB.Context())
			s.Must(err)
		}
		s.Must(s.DB.QueryRow(s.TB.Context(), `SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`).Scan(&undecided))
	}
	var now time.Time
	s.Must(s.DB.QueryRow(s.TB.Context(), `SELECT clock_timestamp()`).Scan(&now))
	s.quiet = append(s.quiet, now)
}

// writeHistory makes requests of every outcome and reservations of every ending.
func (s *fixture) writeHistory() {
	s.TB.Helper()
	ctx := s.TB.Context()
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
		s.askLines(tenant)
		s.moveStocks(tenant)
		brief := s.ask(tenant, requests.Add, "cart-late", "candle", 1)
		s.drain()
		s.retry(tenant, failed)
		s.drain()
		s.after(tenant)
		s.await(`SELECT expires_at <= clock_timestamp() FROM reservations WHERE tenant_id = $1 AND reservation_id = $2`, tenant, brief)
		if i == 0 {
			_, err := inventory.ExpireDue(ctx, s.DB, 100)
			s.Must(err)
			continue
		}
		s.ask(tenant, requests.Set, "cart-later", "candle", 1) // takes the units of the due hold
		s.drain()
	}
	s.set(s.tenants[0], "sold-out", inventory.StockPatch{Stock: new(int64(0))})
	s.ask(s.tenants[0], requests.Wait, "cart-waits", "sold-out", 1)
	s.drain()
	s.ask(s.tenants[0], requests.Add, "cart-open", "hat", 1) // still queued
}

// askUnits asks for units of the hall: two of any, two neighbours, or two by
// name.
func (s *fixture) askUnits(tenant uuid.UUID, n int) {
	s.TB.Helper()
	var units *requests.Units
	switch n % 3 {
	case 1:
		units = &requests.Units{Contiguous: true}
	case 2:
		units = &requests.Units{IDs: []string{fmt.Sprint("seat-", n%30), fmt.Sprint("seat-", (n+7)%30)}}
	}
	_, err := s.intake.Submit(s.TB.Context(), requestrows.Submission{
		TenantID: tenant, CartID: fmt.Sprint("cart-", n), VariantID: "hall", Quantity: 2, Units: units,
		IdempotencyKey: fmt.Sprint("units-", n),
	})
	s.Must(err)
}

func (s *fixture) stockUp(tenant uuid.UUID) {
	s.TB.Helper()
	seats := make([]inventory.NewUnit, 130)
	for i := range seats {
		seats[i].UnitID = fmt.Sprint("seat-", i)
	}
	s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
		_, err := inventory.AddUnitsTx(s.TB.Context(), tx, tenant, "hall", seats, clerk)
		return err
	}))
	s.set(tenant, "ring", inventory.StockPatch{Stock: new(int64(20)), MaxPerCart: new(int32(10))})
	s.Must(lanes.Pin(s.TB.Context(), s.DB, s.inserter, tenant, "ring"))
	s.set(tenant, "hat", inventory.StockPatch{Stock: new(int64(80))})
	s.set(tenant, "sofa", inventory.StockPatch{Stock: new(int64(5)), Backorder: new(true)})
	s.set(tenant, "ebook", inventory.StockPatch{Tracked: new(false)})
	s.set(tenant, "flip", inventory.StockPatch{Tracked: new(false), Stock: new(int64(50))})
	s.set(tenant, "candle", inventory.StockPatch{Stock: new(int64(1)), HoldTTLSeconds: new(int32(1))})
}

// after is what carts do once they have holds.
func (s *fixture) after(tenant uuid.UUID) {
	s.TB.Helper()
	ctx := s.TB.Context()
	checkedOut := 0
	for n := 3; n < 12; n++ {
		_, err := carts.Checkout(ctx, s.DB, tenant, fmt.Sprint("cart-", n), clerk)
		if err == nil {
			checkedOut++
		} else if !errors.Is(err, inventory.ErrCartEmpty) {
			s.TB.Fatal(err)
		}
	}
	if checkedOut == 0 {
		s.TB.Fatal("no cart could be checked out")
	}
	s.checkouts(tenant)
	s.commitPart(tenant)
	s.ask(tenant, requests.Add, "cart-20", "hat", 1)
	_, err := carts.Remove(ctx, s.DB, tenant, "cart-20", "", reservations.CartRemoved, clerk)
	s.Must(err)
	held, err := reservationrows.ByHolder(ctx, s.DB, tenant, inventory.Kind, "cart-1", uuid.Max, 100)
	s.Must(err)
	for _, r := range held {
		if r.Status == reservations.Held {
			_, err := inventory.Extend(ctx, s.DB, tenant, r.ReservationID, time.Minute, 2*time.Hour, clerk)
			s.Must(err)
		}
	}
	_, err = inventory.Adjust(ctx, s.DB, tenant, "hat", 2, clerk)
	s.Must(err)
	s.allot(tenant)
	s.limit(tenant)
}

// limit limits what customers have of a group, without variants.
func (s *fixture) limit(tenant uuid.UUID) {
	s.TB.Helper()
	s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
		_, err := inventory.SetGroupTx(s.TB.Context(), tx, tenant, "headgear", inventory.GroupPatch{MaxPerCustomer: new(int32(4))}, clerk)
		return err
	}))
}

// allot sets units aside, of which a cart holds one, and ends another allotment.
func (s *fixture) allot(tenant uuid.UUID) {
	s.TB.Helper()
	s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
		for allotment, quantity := range map[string]int64{"fans": 3, "club": 2} {
			if _, err := inventory.SetAllotmentTx(s.TB.Context(), tx, tenant, "hat", allotment, quantity, nil, clerk); err != nil {
				return err
			}
		}
		return inventory.EndAllotmentTx(s.TB.Context(), tx, tenant, "hat", "club", clerk)
	}))
	_, err := s.intake.Submit(s.TB.Context(), requestrows.Submission{
		TenantID: tenant, CartID: "cart-fan", VariantID: "hat", Quantity: 1, Units: &requests.Units{Allotment: "fans"},
	})
	s.Must(err)
	for _, lane := range s.lanes {
		_, err := lane.Tick(s.TB.Context())
		s.Must(err)
	}
}

// commitPart commits a part of a hold, brings it back, and moves the rest to
// another cart.
func (s *fixture) commitPart(tenant uuid.UUID) {
	s.TB.Helper()
	ctx := s.TB.Context()
	held, err := reservationrows.ByHolder(ctx, s.DB, tenant, inventory.Kind, "cart-31", uuid.Max, 100)
	s.Must(err)
	for _, r := range held {
		if r.ResourceKey != "hat" {
			continue
		}
		s.Must(pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
			part, rest, err := inventory.CommitPartTx(ctx, tx, tenant, r.ReservationID, inventory.Part{Quantity: 1}, clerk)
			if err != nil || rest == nil {
				return fmt.Errorf("commit a part: %v, %w", rest, err)
			}
			if _, err := inventory.ReturnTx(ctx, tx, tenant, part.ReservationID, inventory.Part{Quantity: 1}, clerk); err != nil {
				return err
			}
			_, err = carts.TransferTx(ctx, tx, tenant, "cart-31", "cart-moved", "ann", clerk)
			return err
		}))
		return
	}
	s.TB.Fatal("cart-31 has no hat")
}

// checkouts makes checkouts of every status: cart-12 is committed, cart-13
// compensated, cart-14 paid too late, and cart-15 still unfinished.
func (s *fixture) checkouts(tenant uuid.UUID) {
	s.TB.Helper()
	ctx := s.TB.Context()
	for cart, results := range map[string][]checkouts.Result{
		"cart-12": {checkouts.ResultPaid}, "cart-13": {checkouts.ResultFailed},
		"cart-14": {checkouts.ResultFailed, checkouts.ResultPaid}, "cart-15": nil,
	} {
		start := checkouts.Start{TenantID: tenant, CartID: cart, PaymentReference: "order", Origin: clerk}
		begun, err := checkouts.Begin(ctx, s.DB, start, checkouts.Config{})
		s.Must(err)
		for i, result := range results {
			payment := checkouts.Payment{TenantID: tenant, CheckoutID: begun.CheckoutID, Result: result, Origin: clerk}
			_, err := checkouts.Answer(ctx, s.DB, payment, checkouts.Config{Log: slog.New(slog.DiscardHandler)})
			if i == 0 {
				s.Must(err)
			}
		}
	}
}

// await polls until a condition holds.
func (s *fixture) await(sql string, args ...any) {
	s.TB.Helper()
	pgtest.Until(s.TB, sql, func() (holds bool) {
		s.Must(s.DB.QueryRow(s.TB.Context(), sql, args...).Scan(&holds))
		return holds
	})
}
