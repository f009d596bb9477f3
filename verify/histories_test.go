package verify_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/projections"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/verify"
)

// histories makes rows by what a shop does rarely, and leaves two variants on
// their way between the lanes.
func (s *fixture) histories() {
	s.TB.Helper()
	tenant := s.tenants[0]
	s.imports(tenant)
	s.untrackAndBack(tenant)
	s.kernels(tenant)
	s.budgets(tenant)
	s.project()
	s.extendCheckout(tenant)
	s.lowerTheCap(tenant)
	s.moves(tenant)
}

// imports reads stocks and units, in both formats, again and with lines that
// are rejected, before and after sales.
func (s *fixture) imports(tenant uuid.UUID) {
	s.TB.Helper()
	csv := func(variant, text string) {
		_, err := inventory.Import(s.TB.Context(), s.DB, tenant, inventory.CSV, strings.NewReader("variant_id,stock,max_per_cart\n"+text), clerk, inventory.ImportOptions{})
		s.Must(err)
		s.ask(tenant, requests.Add, "cart-import", variant, 2)
		s.drain()
	}
	csv("scarf", "scarf,10,\nscarf,12,4\nbad,-1,\nhat,300,\n")
	_, err := carts.Checkout(s.TB.Context(), s.DB, tenant, "cart-import", clerk)
	s.Must(err)
	csv("scarf", "scarf,0,\nscarf,7,\n")
	for _, line := range []string{`{"variant_id":"glove","tracked":false}`, `{"variant_id":"glove","stock":5,"tracked":true,"lane":"hot"}`, `{"variant_id":"scarf","backorder":true}`} {
		_, err := inventory.Import(s.TB.Context(), s.DB, tenant, inventory.NDJSON, strings.NewReader(line), clerk, inventory.ImportOptions{})
		s.Must(err)
	}
	for _, units := range []string{"unit_id\nA1\nA2\nA3\n", "unit_id,position\nA2,9\nB1,20\nB2,20\n"} {
		_, err := inventory.ImportUnits(s.TB.Context(), s.DB, tenant, "balcony", inventory.CSV, strings.NewReader(units), clerk)
		s.Must(err)
		s.ask(tenant, requests.Add, "cart-balcony", "balcony", 2)
		s.drain()
	}
	_, err = carts.Checkout(s.TB.Context(), s.DB, tenant, "cart-balcony", clerk)
	s.Must(err)
}

// untrackAndBack makes a variant untracked and tracked again, with holds and
// requests before, in between and after.
func (s *fixture) untrackAndBack(tenant uuid.UUID) {
	s.TB.Helper()
	s.set(tenant, "swap", inventory.StockPatch{Stock: new(int64(20))})
	for n := range 4 {
		s.ask(tenant, requests.Add, fmt.Sprint("swap-", n), "swap", 2)
	}
	s.drain()
	s.set(tenant, "swap", inventory.StockPatch{Tracked: new(false)})
	s.ask(tenant, requests.Set, "swap-0", "swap", 5) // releases the hold
	s.ask(tenant, requests.Set, "swap-0", "swap", 3)
	s.ask(tenant, requests.Add, "swap-new", "swap", 1)
	s.drain()
	_, err := carts.Checkout(s.TB.Context(), s.DB, tenant, "swap-1", clerk)
	s.Must(err)
	s.set(tenant, "swap", inventory.StockPatch{Tracked: new(true)})
	for _, cart := range []string{"swap-0", "swap-2"} {
		s.ask(tenant, requests.Set, cart, "swap", 1)
		s.ask(tenant, requests.Set, cart, "swap", 3) // of the same drain
		s.ask(tenant, requests.Add, cart, "swap", 1)
	}
	s.drain()
}

// night is the window of a room.
type night struct{ From, To int }

func (n night) Interval() (start, end int64) { return int64(n.From), int64(n.To) }

type rooms struct {
	reservations.HeldAndCommitted[string, night]
}

func (rooms) Capacity(context.Context, pgx.Tx, uuid.UUID, string, night) (int64, error) {
	return 3, nil
}

// kernels holds rooms, ends the holds in every way, and deletes those that
// ended while their record is still kept.
func (s *fixture) kernels(tenant uuid.UUID) {
	s.TB.Helper()
	ctx, by := s.TB.Context(), reservations.By(tenant, audit.User("hotel"))
	kernel, err := reservations.NewKernel(s.DB, rooms{"hotel.room"}, reservations.Config{})
	s.Must(err)
	hold := func(from int, ttl time.Duration) *reservations.Handle {
		held, err := kernel.Hold(ctx, by, "double", night{from, from + 2}, reservations.HoldOpts{Quantity: 1, TTL: ttl})
		s.Must(err)
		return held
	}
	for range 2 {
		_, err := kernel.Commit(ctx, by, hold(1, time.Minute))
		s.Must(err)
		_, err = kernel.Release(ctx, by, hold(2, time.Minute), "guest_left")
		s.Must(err)
		_, err = kernel.Extend(ctx, by, hold(3, time.Minute), time.Minute)
		s.Must(err)
		brief := hold(7, time.Second)
		s.await(`SELECT expires_at <= clock_timestamp() FROM reservations WHERE reservation_id = $1`, brief.ID())
		_, err = kernel.SweepOnce(ctx, 0)
		s.Must(err)
		purged, err := kernel.PurgeEnded(ctx, reservations.PurgeOpts{Retention: time.Microsecond, Committed: true})
		s.Must(err)
		if purged != 1 { // the deadlines of the others are ahead
			s.TB.Fatalf("%d rooms were purged", purged)
		}
	}
	_, err = kernel.Commit(ctx, by, hold(10, time.Minute))
	s.Must(err)
}

// budgets charges metered budgets, settles and purges.
func (s *fixture) budgets(tenant uuid.UUID) {
	s.TB.Helper()
	ctx := s.TB.Context()
	s.Must(migrations.Up(ctx, s.DB, &migrations.Config{Metered: true}))
	commands, err := metered.New(s.DB, metered.Config{})
	s.Must(err)
	for n := range 12 {
		charge := metered.Charge{Scope: fmt.Sprint("scope-", n%2), Amount: 5, Limit: 40, Window: []time.Duration{time.Minute, time.Hour}[n%2]}
		reserved, err := commands.Budgets.TryReserve(ctx, tenant, charge)
		s.Must(err)
		if n%3 == 0 {
			_, err = commands.Budgets.Settle(ctx, tenant, reserved.Reservation, int64(n%5))
			s.Must(err)
		}
	}
	_, err = commands.Purge(ctx, time.Microsecond, 100)
	s.Must(err)
}

// change is an event of the projection, and its state.
type change struct {
	Tenant uuid.UUID `json:"tenant"`
	Action string    `json:"action"`
}

// project folds the record, rebuilds a state, and parks an event that fails.
func (s *fixture) project() {
	s.TB.Helper()
	ctx := s.TB.Context()
	runtime, err := projections.New(s.DB, projections.Projection[change, change, change]{
		Name: "last.change",
		Key:  func(e change) projections.Key { return projections.Key{TenantID: e.Tenant, Key: e.Action} },
		Apply: func(last *change, e change) change {
			if e.Action == "reservation.extended" {
				panic("not this one")
			}
			*last = e
			return e
		},
		Coalesce: func(_, later change) change { return later },
		Source: &projections.Source[change]{Decode: func(r *audit.Record) (change, bool) {
			return change{r.TenantID, r.Action}, json.Valid(r.After)
		}},
	}, projections.Config{})
	s.Must(err)
	feed, err := projections.NewFeed(s.DB, projections.Config{})
	s.Must(err)
	s.Must(runtime.Register(feed))
	pgtest.Until(s.TB, "the record is folded", func() bool {
		_, err := feed.RunOnce(ctx)
		s.Must(err)
		return s.Int(`SELECT count(*) FROM projection_snapshots`) > 5
	})
}

// extendCheckout leaves a checkout whose deadline was moved for its first call.
func (s *fixture) extendCheckout(tenant uuid.UUID) {
	s.TB.Helper()
	ctx := s.TB.Context()
	s.ask(tenant, requests.Add, "cart-slow", "hat", 1)
	s.drain()
	config := checkouts.Config{TTL: time.Second, Validator: pending{}}
	_, err := checkouts.Begin(ctx, s.DB, checkouts.Start{
		TenantID: tenant, CartID: "cart-slow", PaymentReference: "slow", CallbackURL: "https://pay.example/slow", Origin: clerk,
	}, config)
	s.Must(err)
	recovery, err := checkouts.NewRecovery(s.DB, config)
	s.Must(err)
	pgtest.Until(s.TB, "the deadline is moved", func() bool {
		_, err := recovery.RunOnce(ctx)
		s.Must(err)
		return s.Int(`SELECT count(*) FROM audit_log WHERE action = 'checkout.extended'`) > 0
	})
}

type pending struct{}

func (pending) Validate(context.Context, checkouts.Checkout) (checkouts.Result, error) {
	return checkouts.ResultPending, nil
}

// lowerTheCap changes a quantity when the lifetime cap has become shorter than
// the cart's hold has lasted, so that the new hold is due when it is made.
func (s *fixture) lowerTheCap(tenant uuid.UUID) {
	s.TB.Helper()
	s.ask(tenant, requests.Add, "cart-old", "hat", 1)
	s.drain()
	s.Must(pgx.BeginFunc(s.TB.Context(), s.DB, func(tx pgx.Tx) error {
		patch := inventory.HoldRequest{
			TenantID: tenant, RequestID: requestrows.NewID(), CartID: "cart-old", VariantID: "hat", Quantity: 2, Replace: true,
		}
		_, err := tx.Exec(s.TB.Context(), `INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, kind, cart_id, variant_id, quantity, status)
			VALUES ($1, $2, 'normal', 0, 'set', $3, $4, 2, 'done')`, tenant, patch.RequestID, patch.CartID, patch.VariantID)
		if err != nil {
			return err
		}
		holding, err := inventory.HoldTx(s.TB.Context(), tx, []inventory.HoldRequest{patch}, inventory.Terms{TTL: time.Microsecond, LifetimeMax: time.Microsecond})
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		holding.Queue(b)
		return tx.SendBatch(s.TB.Context(), b).Close()
	}))
	s.await(`SELECT bool_or(expires_at < held_at) FROM reservations WHERE tenant_id = $1 AND holder_id = 'cart-old'`, tenant)
}

// moves takes variants to the hot lane and back while requests are queued, and
// leaves one on its way in and one on its way out, with requests queued in
// both streams.
func (s *fixture) moves(tenant uuid.UUID) {
	s.TB.Helper()
	ctx := s.TB.Context()
	shop := func(variant string, n int) {
		for i := range n {
			s.ask(tenant, requests.Add, fmt.Sprint("mover-", i), variant, 1)
			s.ask(tenant, requests.Set, fmt.Sprint("mover-", i), variant, 2)
		}
	}
	for _, variant := range []string{"comes", "goes", "both"} {
		s.set(tenant, variant, inventory.StockPatch{Stock: new(int64(15))})
	}
	normal := func(variant string) []lanes.Placement {
		return []lanes.Placement{{VariantID: variant, Wish: lanes.WishNormal}}
	}
	for range 2 {
		shop("both", 3)
		s.Must(lanes.Pin(ctx, s.DB, s.inserter, tenant, "both"))
		shop("both", 3)
		s.drain()
		shop("both", 3)
		s.Must(lanes.Unpin(ctx, s.DB, s.inserter, tenant, "both"))
		s.Must(pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error { return lanes.ForcePlaceTx(ctx, tx, s.inserter, tenant, normal("both")) }))
		shop("both", 3)
		s.drain()
	}
	s.Must(lanes.Pin(ctx, s.DB, s.inserter, tenant, "goes"))
	s.drain()
	shop("comes", 2)
	s.Must(lanes.Pin(ctx, s.DB, s.inserter, tenant, "comes"))
	shop("comes", 2)
	shop("goes", 2)
	s.Must(pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error { return lanes.ForcePlaceTx(ctx, tx, s.inserter, tenant, normal("goes")) }))
	shop("goes", 2)
}

// earlier makes all rows older, as they are after an outage of the programs, or
// in a copy that was restored. The record repeats deadlines.
func (s *fixture) earlier(age time.Duration) {
	s.TB.Helper()
	ctx := s.TB.Context()
	rows, err := s.DB.Query(ctx, `SELECT format('UPDATE %I SET %s', c.table_name, string_agg(format('%1$I = %1$I - $1::interval', c.column_name), ', '))
		FROM information_schema.columns AS c
		WHERE c.table_schema = 'public' AND c.data_type = 'timestamp with time zone' AND c.table_name NOT LIKE 'river%' AND c.table_name NOT LIKE 'budget%'
		GROUP BY c.table_name`)
	s.Must(err)
	updates, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.Must(err)
	for _, field := range []string{"expires_at", "deadline"} {
		for _, column := range []string{"before", "after"} {
			updates = append(updates, fmt.Sprintf(`UPDATE audit_log SET %[2]s = jsonb_set(%[2]s, '{%[1]s}', to_jsonb((%[2]s->>'%[1]s')::timestamptz - $1::interval))
				WHERE %[2]s->>'%[1]s' IS NOT NULL`, field, column))
		}
	}
	for _, update := range updates {
		_, err := s.DB.Exec(ctx, update, age)
		s.Must(err)
	}
}

// mustBeSound checks that a run finds nothing.
func (s *fixture) mustBeSound(when string) {
	s.TB.Helper()
	report, err := verify.Run(s.TB.Context(), s.DB, verify.Config{QueueAgeMax: 10 * time.Minute})
	s.Must(err)
	if !report.OK {
		for _, c := range report.Checks {
			if c.Broken > 0 {
				s.TB.Errorf("%s: %s: %s", when, c.Name, c.Sample)
			}
		}
	}
}

// Whatever the service does rarely breaks no check, nor does an outage of the
// programs, or a backup that is restored after hours.
func TestRunOnRareHistories(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.writeHistory()
	s.histories()
	for _, sort := range []string{
		`SELECT count(*) FROM hot_variants AS h JOIN reservation_requests AS r USING (tenant_id, variant_id)
			WHERE h.state = 'entering' AND r.status = 'queued' AND r.lane = 'normal'`,
		`SELECT count(*) FROM hot_variants AS h JOIN reservation_requests AS r USING (tenant_id, variant_id)
			WHERE h.state = 'leaving' AND r.status = 'queued' AND r.lane = 'hot'`,
		`SELECT count(*) FROM reservations WHERE resource_window IS NOT NULL AND status = 'committed'`,
		`SELECT count(*) FROM audit_log WHERE action = 'checkout.extended'`,
		`SELECT count(*) FROM budget_ledger WHERE reserved_at IS NOT NULL`,
		`SELECT count(*) FROM projection_snapshots`,
		`SELECT count(*) FROM postings WHERE block = 'balcony' AND status = 'inactive'`,
	} {
		if s.Int(sort) == 0 {
			t.Errorf("there is no row of the sort: %s", sort)
		}
	}
	s.mustBeSound("after rare histories")
	_, err := s.DB.Exec(t.Context(), `INSERT INTO tenants (tenant_id, name) SELECT DISTINCT tenant_id, tenant_id::text FROM inventory_stocks`)
	s.Must(err)
	_, err = inventory.Set(t.Context(), s.DB, uuid.New(), "ticket", inventory.StockPatch{Stock: new(int64(1))}, audit.Origin{Actor: audit.User("my-program")})
	s.Must(err)
	s.mustBeSound("with tenants that only a library uses")
	s.earlier(3 * time.Hour)
	s.mustBeSound("after an outage of three hours")
}

// The requests of a lane that was paused are old when it is resumed.
func TestRunAfterAPause(t *testing.T) {
	t.Parallel()
	s := newFixture(t)
	s.stockUp(s.tenants[0])
	s.Must(lanes.Control(t.Context(), s.DB, lanes.Normal, lanes.Patch{Paused: new(true)}, clerk))
	s.ask(s.tenants[0], requests.Add, "cart", "hat", 1)
	s.earlier(3 * time.Hour)
	s.set(s.tenants[0], "hat", inventory.StockPatch{MaxPerCart: new(int32(9))})
	_, err := s.DB.Exec(t.Context(), `UPDATE audit_log SET created_at = created_at - interval '2 minutes'`)
	s.Must(err)
	s.Must(lanes.Control(t.Context(), s.DB, lanes.Normal, lanes.Patch{Paused: new(false)}, clerk))
	s.mustBeSound("just after the lane was resumed")
	_, err = s.DB.Exec(t.Context(), `UPDATE audit_log SET created_at = created_at - interval '2 minutes'`)
	s.Must(err)
	report, err := verify.Run(t.Context(), s.DB, verify.Config{QueueAgeMax: 10 * time.Minute})
	s.Must(err)
	if found := broken(report); len(found) != 1 || found[0] != "queued_in_time" {
		t.Errorf("two minutes after the lane was resumed: found %v, want queued_in_time", found)
	}
}
