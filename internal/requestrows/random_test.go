package requestrows_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// machine runs the same steps on the model and on the real shop.
type machine struct {
	t     *rapid.T
	b     *testkit.Fixture
	lanes map[int]*queues.Lane // by batch size
	lane  *queues.Lane
	m     *model
}

var (
	modelCarts    = []string{"a", "b", "c"}
	modelVariants = []string{"shoe", "sock", "sofa"}
)

// reset empties the shop and fills its stocks again.
func (x *machine) reset() {
	x.b.Exec(`DELETE FROM reservations`)
	x.b.Exec(`DELETE FROM reservation_requests`)
	x.b.Exec(`DELETE FROM audit_log`)
	x.m = &model{stocks: map[string]*modelStock{"song": {}}}
	for _, v := range modelVariants {
		s := &modelStock{stock: rapid.Int64Range(0, 8).Draw(x.t, "stock of "+v), tracked: true, backorder: v == "sofa"}
		if rapid.Bool().Draw(x.t, "limited") {
			s.maxPerCart = rapid.Int64Range(1, 5).Draw(x.t, "max_per_cart")
		}
		x.m.stocks[v] = s
		x.b.Exec(`UPDATE inventory_stocks SET stock = $2, reserved = 0, max_per_cart = nullif($3, 0) WHERE variant_id = $1`, v, s.stock, s.maxPerCart)
	}
	x.m.batch = rapid.SampledFrom([]int{1, 2, 3, 100}).Draw(x.t, "batch")
	x.lane = x.lanes[x.m.batch]
	if x.lane == nil {
		x.lane = x.b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: x.m.batch}})
		x.lanes[x.m.batch] = x.lane
	}
}

// want fails the test unless the real shop returned the model's error.
func (x *machine) want(what string, got, want error) {
	if !sameError(got, want) {
		x.t.Fatalf("%s: %v, want %v as in the model", what, got, want)
	}
}

func (x *machine) cart() string { return rapid.SampledFrom(modelCarts).Draw(x.t, "cart") }

func (x *machine) submit(*rapid.T) {
	s := requestrows.Submission{
		TenantID: x.b.Tenant, RequestID: requestrows.NewID(), Kind: rapid.SampledFrom([]requests.Kind{requests.Add, requests.Set}).Draw(x.t, "kind"),
		CartID: x.cart(), VariantID: rapid.SampledFrom([]string{"shoe", "shoe", "sock", "sofa", "song", "ghost"}).Draw(x.t, "variant"),
		Quantity: rapid.Int32Range(1, 6).Draw(x.t, "quantity"),
	}
	x.b.SubmitAs(s)
	x.m.submit(s.RequestID, s.Kind, s.CartID, s.VariantID, int64(s.Quantity))
}

func (x *machine) tick(*rapid.T) {
	x.b.Tick(x.lane)
	x.m.tick()
	// A drain of the hot lane also expires due holds. The drain chooses which
	// ones, so the model reads them.
	rows, err := x.b.DB.Query(x.b.TB.Context(), `SELECT reservation_id FROM reservations WHERE status = 'expired'`)
	x.want("read", err, nil)
	expired, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	x.want("read", err, nil)
	for _, h := range x.m.holds {
		if h.due() && slices.Contains(expired, h.id) {
			h.end(reservations.Expired, reservationrows.TTL)
		}
	}
}

func (x *machine) remove(*rapid.T) {
	cart, variant := x.cart(), rapid.SampledFrom([]string{"", "shoe", "sock", "ghost"}).Draw(x.t, "variant")
	_, err := carts.Remove(x.b.TB.Context(), x.b.DB, x.b.Tenant, cart, variant, reservations.CartRemoved, shopper)
	x.want("remove", err, nil)
	x.m.remove(cart, variant)
}

func (x *machine) checkout(*rapid.T) {
	cart := x.cart()
	_, err := carts.Checkout(x.b.TB.Context(), x.b.DB, x.b.Tenant, cart, shopper)
	x.want("checkout of "+cart, err, x.m.checkout(cart))
}

func (x *machine) extend(*rapid.T) {
	cart := x.cart()
	err := pgx.BeginFunc(x.b.TB.Context(), x.b.DB, func(tx pgx.Tx) error {
		_, err := inventory.ExtendCartTx(x.b.TB.Context(), tx, x.b.Tenant, cart, time.Second, 2*time.Hour, shopper)
		return err
	})
	x.want("extend "+cart, err, x.m.extend(cart))
}

// lapse makes a hold due.
func (x *machine) lapse(*rapid.T) {
	if h := x.m.pick(x.t); h != nil && h.live() {
		x.b.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE reservation_id = $1`, h.id)
		h.lapsedAt = x.m.step
	}
}

func (x *machine) sweep(*rapid.T) {
	limit := rapid.SampledFrom([]int{1, 2, 100}).Draw(x.t, "limit")
	swept, err := inventory.ExpireDue(x.b.TB.Context(), x.b.DB, limit)
	x.want("sweep", err, nil)
	if expired := x.m.sweep(limit); swept.Expired != expired {
		x.t.Fatalf("a sweep of %d expired %d, want %d as in the model", limit, swept.Expired, expired)
	}
}

func (x *machine) adjust(*rapid.T) {
	variant, delta := rapid.SampledFrom(modelVariants).Draw(x.t, "variant"), rapid.Int64Range(-4, 4).Filter(func(n int64) bool { return n != 0 }).Draw(x.t, "delta")
	_, err := inventory.Adjust(x.b.TB.Context(), x.b.DB, x.b.Tenant, variant, delta, shopper)
	if allowed := x.m.adjust(variant, delta); (err == nil) != allowed {
		x.t.Fatalf("adjust %s by %d: %v, want success %t as in the model", variant, delta, err, allowed)
	}
}

// byID commits or releases one reservation, in any status.
func (x *machine) byID(*rapid.T) {
	h := x.m.pick(x.t)
	if h == nil {
		return
	}
	var err error
	ok := h.live()
	if rapid.Bool().Draw(x.t, "commit") {
		_, err = inventory.Commit(x.b.TB.Context(), x.b.DB, x.b.Tenant, h.id, shopper)
		if ok {
			h.end(reservations.Committed, "")
			x.m.stocks[h.variant].stock -= h.quantity
		}
	} else {
		_, err = inventory.Release(x.b.TB.Context(), x.b.DB, x.b.Tenant, h.id, reservations.Operator, shopper)
		switch {
		case ok:
			h.end(reservations.Released, reservations.Operator)
		case h.due():
			h.end(reservations.Expired, reservationrows.TTL)
		}
	}
	if _, conflict := errors.AsType[*reservations.ConflictError](err); (err == nil) != ok || conflict == ok {
		x.t.Fatalf("%s of cart %s: %v, want success %t as in the model", h.variant, h.cart, err, ok)
	}
}

// check compares all rows with the model.
func (x *machine) check(*rapid.T) {
	x.m.step++
	ctx := x.b.TB.Context()
	type requestState struct {
		Status requests.Status
		Reason requests.Reason
	}
	type holdState struct {
		Status   reservations.Status
		Reason   reservations.ReleaseReason
		Quantity int64
	}
	type stockState struct{ Stock, Reserved, Available int64 }
	type shopState struct {
		Requests map[uuid.UUID]requestState
		Holds    map[uuid.UUID]holdState
		Stocks   map[string]stockState
	}
	want := shopState{map[uuid.UUID]requestState{}, map[uuid.UUID]holdState{}, map[string]stockState{}}
	got := shopState{map[uuid.UUID]requestState{}, map[uuid.UUID]holdState{}, map[string]stockState{}}
	for _, r := range x.m.requests {
		want.Requests[r.id] = requestState{r.status, r.reason}
	}
	for _, h := range x.m.holds {
		shown := holdState{h.status, h.reason, h.quantity}
		if h.due() {
			shown.Status, shown.Reason = reservations.Expired, reservationrows.TTL
		}
		want.Holds[h.id] = shown
	}
	for v, s := range x.m.stocks {
		_, due := x.m.duesOf(v)
		want.Stocks[v] = stockState{s.stock, x.m.reserved(v), s.stock - x.m.reserved(v) + due}
	}
	for _, cart := range modelCarts {
		c, err := requestrows.ViewCart(ctx, x.b.DB, x.b.Tenant, cart, 0, "")
		x.want("view "+cart, err, nil)
		for _, r := range c.Reservations {
			got.Holds[r.ReservationID] = holdState{r.Status, r.ReleaseReason, r.Quantity}
		}
	}
	rows, err := x.b.DB.Query(ctx, `SELECT request_id, status, coalesce(reason, '') FROM reservation_requests`)
	x.want("read", err, nil)
	var id uuid.UUID
	var r requestState
	_, err = pgx.ForEachRow(rows, []any{&id, &r.Status, &r.Reason}, func() error { got.Requests[id] = r; return nil })
	x.want("read", err, nil)
	page, err := inventory.List(ctx, x.b.DB, x.b.Tenant, 100, "")
	x.want("list", err, nil)
	for _, s := range page.Items {
		got.Stocks[s.VariantID] = stockState{s.Stock, s.Reserved, s.Available}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		x.t.Fatalf("(-model +real):\n%s", diff)
	}
}

// A few carts run random verbs in random order. After every step the shop
// equals the model.
func TestRandomShopping(t *testing.T) {
	t.Parallel()
	for name, newBench := range map[string]func(testing.TB) *testkit.Fixture{"normal": newNormal, "hot": newHot} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			var database string
			pgtest.Must(t, b.DB.QueryRow(t.Context(), `SELECT current_database()`).Scan(&database))
			b.Exec(fmt.Sprintf(`ALTER DATABASE %q SET synchronous_commit = off`, database)) // thousands of small steps
			b.DB.Reset()
			for _, v := range slices.Concat(modelVariants, []string{"song", "ghost"}) {
				b.Stock(v, 0)
			}
			b.Exec(`DELETE FROM inventory_stocks WHERE variant_id = 'ghost'`) // unknown in the hot lane too
			b.Exec(`UPDATE inventory_stocks SET backorder = true WHERE variant_id = 'sofa'`)
			b.Exec(`UPDATE inventory_stocks SET tracked = false WHERE variant_id = 'song'`)
			x := &machine{b: b, lanes: map[int]*queues.Lane{}}
			b.Tick(b.Lane(queues.LaneConfig{}))
			rapid.Check(t, pgtest.Fewer(func(rt *rapid.T) {
				x.t = rt
				x.reset()
				rt.Repeat(map[string]func(*rapid.T){
					"submit": x.submit, "submit too": x.submit, "submit more": x.submit, "tick": x.tick, "tick again": x.tick, "remove": x.remove,
					"checkout": x.checkout, "extend": x.extend, "lapse": x.lapse, "lapse too": x.lapse, "sweep": x.sweep, "adjust": x.adjust,
					"by id": x.byID, "": x.check,
				})
				b.Exec(`DELETE FROM reservation_requests WHERE variant_id = 'song'`) // it is done without a hold, as it should be
				b.CheckInvariants()
			}))
		})
	}
}
