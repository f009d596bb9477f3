package ready_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/auditrows"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/ready"
	"github.com/holdfast/holdfast/projections"
	"github.com/holdfast/holdfast/reservations"
)

// fixture is a database in which two tenants sell.
type fixture struct {
	pgtest.Fixture
	tenants [2]uuid.UUID
	set     *ready.Set
	feed    *projections.Feed
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	s := &fixture{Fixture: pgtest.NewFixture(t), tenants: [2]uuid.UUID{uuid.New(), uuid.New()}}
	s.Exec(fmt.Sprintf(`ALTER DATABASE %q SET synchronous_commit = off`, s.DB.Config().ConnConfig.Database))
	s.DB.Reset()
	config := projections.Config{Log: slog.New(slog.DiscardHandler), Batch: 37, Lease: time.Minute}
	var err error
	s.set, err = ready.New(s.DB, config)
	s.Must(err)
	s.feed, err = projections.NewFeed(s.DB, config)
	s.Must(err)
	s.Must(s.set.Register(s.feed))
	return s
}

var clerk = audit.Origin{Actor: audit.User("hf_clerk0")}

// fixed are variants whose stock is never below what is reserved.
var fixed = []string{"shoe", "hat", "hall"}

func (s *fixture) stockUp() {
	s.TB.Helper()
	seats := make([]inventory.NewUnit, 40)
	for i := range seats {
		seats[i].UnitID = fmt.Sprint("seat-", i)
	}
	for _, tenant := range s.tenants {
		for variant, patch := range map[string]inventory.StockPatch{
			"shoe":  {Stock: new(int64(12))},
			"hat":   {Stock: new(int64(30)), MaxPerCart: new(int32(6))},
			"sofa":  {Stock: new(int64(2)), Backorder: new(true)},
			"flip":  {Stock: new(int64(9)), Tracked: new(false)},
			"quiet": {Stock: new(int64(3))},
		} {
			_, err := inventory.Set(s.TB.Context(), s.DB, tenant, variant, patch, clerk)
			s.Must(err)
		}
		s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
			_, err := inventory.AddUnitsTx(s.TB.Context(), tx, tenant, "hall", seats, clerk)
			return err
		}))
	}
}

// history makes random transitions of each tenant, in several sessions.
func (s *fixture) history(steps int) {
	s.TB.Helper()
	seed := rand.Uint64()
	s.TB.Logf("seed %d", seed)
	var sessions sync.WaitGroup
	for i, tenant := range s.tenants {
		for n := range 2 {
			random := rand.New(rand.NewPCG(seed, uint64(2*i+n)))
			sessions.Go(func() {
				for range steps {
					if err := s.step(random, tenant); err != nil {
						s.TB.Error(err)
						return
					}
				}
			})
		}
	}
	sessions.Wait()
}

// step makes one random transition, or finds that it is not allowed.
func (s *fixture) step(random *rand.Rand, tenant uuid.UUID) error {
	ctx := s.TB.Context()
	cart := fmt.Sprint("cart-", random.IntN(8))
	variant := []string{"shoe", "hat", "sofa", "flip"}[random.IntN(4)]
	in := func(fn func(tx pgx.Tx) error) error { return pgx.BeginFunc(ctx, s.DB, fn) }
	var err error
	switch random.IntN(9) {
	case 0, 1, 2, 3:
		return in(func(tx pgx.Tx) error { return holdTx(ctx, tx, random, tenant) })
	case 4:
		err = in(func(tx pgx.Tx) error {
			_, err := inventory.CheckoutTx(ctx, tx, tenant, cart, clerk)
			return err
		})
	case 5:
		err = in(func(tx pgx.Tx) error {
			_, err := inventory.ReleaseCartTx(ctx, tx, tenant, cart, "", reservations.CartRemoved, clerk)
			return err
		})
	case 6: // a hold becomes due, and is expired by a sweep or by the next buyer
		err = pgtest.Lapse(ctx, s.DB, `UPDATE reservations
			SET first_held_at = first_held_at - interval '1 day', held_at = held_at - interval '1 day', expires_at = clock_timestamp() - interval '1 second'
			WHERE tenant_id = $1 AND reservation_id = (
				SELECT reservation_id FROM reservations WHERE tenant_id = $1 AND holder_id = $2 AND status = 'held' LIMIT 1)`, tenant, cart)
		if err == nil && random.IntN(2) == 0 {
			_, err = inventory.ExpireDue(ctx, s.DB, 100)
		}
	case 7:
		patch := inventory.StockPatch{Stock: new(random.Int64N(40))}
		if variant == "flip" {
			patch.Tracked = new(random.IntN(2) == 0)
		}
		_, err = inventory.Set(ctx, s.DB, tenant, variant, patch, clerk)
	default:
		_, err = inventory.Adjust(ctx, s.DB, tenant, variant, random.Int64N(9)-4, clerk)
	}
	if errors.Is(err, inventory.ErrCartEmpty) || errors.Is(err, inventory.ErrHoldExpired) || errors.Is(err, inventory.ErrBelowReserved) ||
		errors.As(err, new(*inventory.InvalidError)) {
		return nil
	}
	return err
}

// holdTx decides a random batch of adds and changes of quantity.
func holdTx(ctx context.Context, tx pgx.Tx, random *rand.Rand, tenant uuid.UUID) error {
	requests := make([]inventory.HoldRequest, 1+random.IntN(6))
	for i := range requests {
		requests[i] = inventory.HoldRequest{
			TenantID: tenant, RequestID: uuid.Must(uuid.NewV7()), CartID: fmt.Sprint("cart-", random.IntN(8)),
			VariantID: []string{"shoe", "hat", "sofa", "flip", "hall"}[random.IntN(5)], Quantity: 1 + random.Int64N(5),
		}
		if requests[i].VariantID == "hall" {
			requests[i].Block = true
		} else {
			requests[i].Replace = random.IntN(2) == 0
		}
	}
	terms, err := inventory.Terms{TTL: time.Hour}.WithDefaults()
	if err != nil {
		return err
	}
	holding, err := inventory.HoldTx(ctx, tx, requests, terms)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	holding.Queue(b)
	return tx.SendBatch(ctx, b).Close()
}

// follow runs the feed until it has folded the whole record.
func (s *fixture) follow() {
	s.TB.Helper()
	pgtest.Until(s.TB, "the feed has folded the record", func() bool {
		_, err := s.feed.RunOnce(s.TB.Context())
		s.Must(err)
		states, err := audit.Subscriptions(s.TB.Context(), s.DB)
		s.Must(err)
		return len(states) == 1 && states[0].Lag == 0
	})
}

// verified fails the test unless the availability of every stock is its row's.
func (s *fixture) verified() {
	s.TB.Helper()
	report, err := s.set.Verify(s.TB.Context())
	s.Must(err)
	if report.Compared != 12 || report.Wrong > 0 {
		s.TB.Errorf("%d compared, %d wrong: %+v", report.Compared, report.Wrong, report.Found)
	}
}

// Availability equals the stocks at any time, also while the history goes on,
// and no prefix of the record has more reserved than there is.
func TestAvailabilityIsTheStock(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stockUp()
	s.follow()
	var trading sync.WaitGroup
	trading.Go(func() { s.history(60) })
	for range 10 {
		_, err := s.feed.RunOnce(t.Context())
		s.Must(err)
		s.verified()
	}
	trading.Wait()
	s.follow()
	s.verified()
	s.neverMoreThanStock()
	if _, found, err := s.set.Rate.Read(t.Context(), projections.Key{TenantID: s.tenants[0], Key: "all"}); err != nil || !found {
		t.Errorf("a rate: found %t, %v", found, err)
	}
	s.counts()

	s.Exec(`UPDATE projection_snapshots SET state = '{"variant_id":"shoe"}' WHERE tenant_id = $1 AND projection_name = 'stocks.availability' AND key = 'shoe'`, s.tenants[0])
	report, err := s.set.Verify(t.Context())
	if err != nil || report.Wrong != 1 || report.Found[0].Key.Key != "shoe" {
		t.Errorf("a wrong state: %+v, %v", report, err)
	}
	for name, keys := range map[string]int{"stocks.availability": 12, "reservations.counters": 2, "outcomes.rate": 2, "outcomes.latency": 2} {
		if n, err := s.feed.RebuildFromRecord(t.Context(), name, nil); err != nil || n != keys {
			t.Errorf("%s: %d rebuilt, %v", name, n, err)
		}
	}
	s.verified()
}

// neverMoreThanStock folds the record row by row.
func (s *fixture) neverMoreThanStock() {
	s.TB.Helper()
	rows, err := s.DB.Query(s.TB.Context(), `SELECT tenant_id, target_id, audit_id, created_at, action, `+auditrows.Columns+` FROM audit_log a ORDER BY audit_id`)
	s.Must(err)
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r audit.Record, err error) {
		err = auditrows.Scan(row, &r.Action, &r.Before, &r.After, &r.TenantID, &r.TargetID, &r.AuditID, &r.CreatedAt, &r.Action)
		return r, err
	})
	s.Must(err)
	states := make(map[projections.Key]*ready.Availability)
	full := 0
	for i := range records {
		key, now, ok := ready.FoldAvailability(states, &records[i])
		if !ok || key.Key == "sofa" || key.Key == "flip" {
			continue
		}
		if now.Reserved < 0 || now.Reserved > now.Stock {
			s.TB.Fatalf("after audit row %d (%s), %s: %+v", records[i].AuditID, records[i].Action, key.Key, now)
		}
		if now.Available == 0 {
			full++
		}
	}
	if full == 0 {
		s.TB.Error("nothing ever sold out")
	}
	for _, tenant := range s.tenants {
		for _, variant := range fixed {
			if states[projections.Key{TenantID: tenant, Key: variant}] == nil {
				s.TB.Errorf("no events of %s", variant)
			}
		}
	}
}

// counts compares the counters with the record.
func (s *fixture) counts() {
	s.TB.Helper()
	for _, tenant := range s.tenants {
		got, err := s.set.Counters.ReadRequired(s.TB.Context(), projections.Key{TenantID: tenant, Key: inventory.Kind})
		s.Must(err)
		var want ready.Counters
		s.Must(s.DB.QueryRow(s.TB.Context(), `SELECT count(*) FILTER (WHERE action = 'reservation.held'), count(*) FILTER (WHERE action = 'reservation.committed'),
			count(*) FILTER (WHERE action IN ('reservation.released', 'reservation.expired')) FROM audit_log WHERE tenant_id = $1`, tenant).
			Scan(&want.Held, &want.Committed, &want.Released))
		if got != want || want.Held == 0 || want.Committed == 0 || want.Released == 0 {
			s.TB.Errorf("counters %+v, want %+v", got, want)
		}
	}
}

// A database whose older records are pruned is seeded from the stocks, also one
// that another transaction has locked meanwhile. The feed then leaves out what
// the seeds contain.
func TestSeedMissing(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stockUp()
	s.history(20)
	s.Exec(`DELETE FROM audit_log WHERE audit_id <= (SELECT max(audit_id) / 2 FROM audit_log)`)
	locking, err := s.DB.Begin(t.Context())
	s.Must(err)
	_, err = inventory.SetTx(t.Context(), locking, s.tenants[0], "shoe", inventory.StockPatch{Stock: new(int64(39))}, clerk)
	s.Must(err)
	seeded := make(chan int, 1)
	go func() {
		n, err := s.set.SeedMissing(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Error(err)
		}
		seeded <- n
	}()
	pgtest.UntilBlocked(t, s.DB, 1)
	s.Must(locking.Commit(t.Context()))
	if n := <-seeded; n != 12 {
		t.Errorf("%d seeded, want 12", n)
	}
	s.follow()
	s.verified()
	s.history(20)
	s.follow()
	s.verified()
	if n, err := s.set.SeedMissing(t.Context()); err != nil || n != 0 {
		t.Errorf("%d seeded again, %v", n, err)
	}
	s.Exec(`UPDATE projection_snapshots SET state = '{}' WHERE projection_name = 'stocks.availability'`)
	one := projections.Key{TenantID: s.tenants[0], Key: "shoe"}
	if n, err := s.set.ReseedOne(t.Context(), one); err != nil || n != 1 {
		t.Errorf("%d seeded, %v", n, err)
	}
	if n, err := s.set.Reseed(t.Context(), nil); err != nil || n != 12 {
		t.Errorf("%d seeded, %v", n, err)
	}
	s.verified()
}
