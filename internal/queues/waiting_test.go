package queues_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

func waiting(cart, variant string, quantity int32) requestrows.Submission {
	return requestrows.Submission{Kind: requests.Wait, CartID: cart, VariantID: variant, Quantity: quantity}
}

// tickAll lets all lanes tick until nothing more is decided.
func (f *severalFixture) tickAll() {
	f.TB.Helper()
	for more := true; more; {
		more = false
		for _, lane := range f.lanes {
			more = f.Tick(lane).Claimed > 0 || more
		}
	}
}

func (f *severalFixture) tx(do func(tx pgx.Tx) error) {
	f.TB.Helper()
	f.Must(pgx.BeginFunc(f.TB.Context(), f.DB, do))
}

func (f *severalFixture) release(cart, variant string) {
	f.TB.Helper()
	f.Must(failure(carts.Remove(f.TB.Context(), f.DB, f.Tenant, cart, variant, reservations.CartRemoved, audit.Origin{})))
}

func (f *severalFixture) wantPosition(r requests.Request, position int64) {
	f.TB.Helper()
	v := f.Get(r)
	if v.Status != requests.Waiting || v.Position == nil || *v.Position != position {
		f.TB.Errorf("request of cart %s is %s at %v, want waiting at %d", r.CartID, v.Status, v.Position, position)
	}
}

func onEachOf(t *testing.T, variant string, test func(t *testing.T, f *severalFixture)) {
	t.Helper()
	for _, hot := range []bool{false, true} {
		t.Run(fmt.Sprintf("hot %t", hot), func(t *testing.T) {
			t.Parallel()
			f := newSeveral(t)
			f.Stock(variant, 2)
			if hot {
				f.Pin(variant)
			}
			test(t, f)
			f.CheckInvariants()
		})
	}
}

// Units that are freed go to the requests in line, in their order; no other request
// gets one meanwhile, and the first that fits what is free goes first.
func TestWaitingList(t *testing.T) {
	t.Parallel()
	onEachOf(t, "shoe", func(t *testing.T, f *severalFixture) {
		f.Must(failure(inventory.Set(t.Context(), f.DB, f.Tenant, "shoe", inventory.StockPatch{Sale: &inventory.Sale{ClaimSeconds: new(int32(77))}}, audit.Origin{})))
		first, plain := f.SubmitAs(waiting("first", "shoe", 1)), f.Submit("plain", "shoe", 1)
		three, one, two := f.SubmitAs(waiting("three", "shoe", 3)), f.SubmitAs(waiting("one", "shoe", 1)), f.SubmitAs(waiting("two", "shoe", 2))
		late := f.Submit("late", "shoe", 1)
		f.tickAll()
		f.Want(first, requests.Done, "")
		f.Want(plain, requests.Done, "")
		f.Want(late, requests.Failed, requests.OutOfStock)
		f.wantPosition(three, 1)
		f.wantPosition(one, 2)
		f.wantPosition(two, 3)

		f.release("plain", "shoe")
		during := f.Submit("during", "shoe", 1) // the free unit is for those in line
		f.tickAll()
		f.Want(during, requests.Failed, requests.OutOfStock)
		f.Want(one, requests.Done, "")
		if v := f.Get(one); v.Reservation == nil || v.Reservation.ExpiresAt.Sub(v.Reservation.HeldAt) != 77*time.Second {
			t.Errorf("the offer is %+v, want one of 77 s", v.Reservation)
		}
		f.wantPosition(two, 2)

		f.Must(failure(inventory.Adjust(t.Context(), f.DB, f.Tenant, "shoe", 3, audit.Origin{})))
		f.tickAll()
		f.Want(three, requests.Done, "")
		f.wantPosition(two, 1)
		f.release("first", "shoe")
		f.tickAll()
		f.wantPosition(two, 1)
		f.release("two", "shoe") // leaves
		f.Want(two, requests.Failed, requests.Cancelled)
		after := f.Submit("after", "shoe", 1) // no request waits any more
		f.tickAll()
		f.Want(after, requests.Done, "")
	})
}

// An offer that lapses goes to the next in line; the request stays done.
func TestOfferLapses(t *testing.T) {
	t.Parallel()
	onEachOf(t, "shoe", func(t *testing.T, f *severalFixture) {
		all := f.Submit("all", "shoe", 2)
		a, b := f.SubmitAs(waiting("a", "shoe", 2)), f.SubmitAs(waiting("b", "shoe", 2))
		f.tickAll()
		f.Want(all, requests.Done, "")
		f.wantPosition(b, 2)
		for _, lapsing := range []requests.Request{all, a} {
			f.Exec(`UPDATE reservations SET expires_at = held_at WHERE reservation_id = $1`, lapsing.RequestID)
			f.Exec(`UPDATE inventory_stocks SET due_from = '-infinity'`)
			f.tickAll()
			if v := f.Get(lapsing); v.Status != requests.Done || v.Reservation.Status != reservations.Expired {
				t.Errorf("the request of cart %s is %s with %+v", lapsing.CartID, v.Status, v.Reservation)
			}
		}
		f.Want(b, requests.Done, "")
	})
}

// What a request in line meets beside a lack of units.
func TestWaitingEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(f *severalFixture)
		status requests.Status
		reason requests.Reason
	}{
		{"the stock is deleted", func(f *severalFixture) {
			f.release("all", "")
			f.tx(func(tx pgx.Tx) error { return inventory.DeleteTx(f.TB.Context(), tx, f.Tenant, "shoe", audit.Origin{}) })
		}, requests.Failed, requests.UnknownVariant},
		{"the stock is deleted and made again", func(f *severalFixture) {
			f.release("all", "")
			f.tx(func(tx pgx.Tx) error { return inventory.DeleteTx(f.TB.Context(), tx, f.Tenant, "shoe", audit.Origin{}) })
			f.Stock("shoe", 1)
		}, requests.Done, ""},
		{"digital", func(f *severalFixture) { f.patch(inventory.StockPatch{Tracked: new(false)}) }, requests.Done, ""},
		{"backorder", func(f *severalFixture) { f.patch(inventory.StockPatch{Backorder: new(true)}) }, requests.Done, ""},
		{"preorder", func(f *severalFixture) {
			f.patch(inventory.StockPatch{Backorder: new(true), PreorderMax: new(int64(1))})
		}, requests.Done, ""},
		{"the sale has ended", func(f *severalFixture) {
			f.patch(inventory.StockPatch{Stock: new(int64(3)), Sale: &inventory.Sale{EndsAt: new(time.Now().Add(-time.Hour))}})
		}, requests.Failed, requests.NotOnSale},
		{"a limit", func(f *severalFixture) {
			f.patch(inventory.StockPatch{Stock: new(int64(3)), Sale: &inventory.Sale{QuantityMin: new(int32(2))}})
		}, requests.Failed, requests.NotAllowed},
		{"the cart is emptied", func(f *severalFixture) { f.release("waits", "") }, requests.Failed, requests.Cancelled},
		{"checked out", func(f *severalFixture) {
			f.Stock("hat", 1)
			f.Submit("waits", "hat", 1)
			f.tickAll()
			f.Must(failure(carts.Checkout(f.TB.Context(), f.DB, f.Tenant, "waits", audit.Origin{})))
		}, requests.Waiting, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newSeveral(t)
			f.Stock("shoe", 2)
			f.Submit("all", "shoe", 2)
			r := f.SubmitAs(waiting("waits", "shoe", 1))
			f.tickAll()
			f.wantPosition(r, 1)
			test.change(f)
			f.tickAll()
			f.Want(r, test.status, test.reason)
			f.CheckInvariants()
		})
	}
}

func (f *severalFixture) patch(p inventory.StockPatch) {
	f.TB.Helper()
	f.Must(failure(inventory.Set(f.TB.Context(), f.DB, f.Tenant, "shoe", p, audit.Origin{})))
}

// A cart that is transferred keeps its place in line.
func TestWaitingMoves(t *testing.T) {
	t.Parallel()
	f := newSeveral(t)
	f.Stock("shoe", 1)
	f.Submit("all", "shoe", 1)
	guest, other := f.SubmitAs(waiting("guest", "shoe", 1)), f.SubmitAs(waiting("other", "shoe", 1))
	f.tickAll()
	f.tx(func(tx pgx.Tx) error {
		return failure(carts.TransferTx(t.Context(), tx, f.Tenant, "guest", "member", "ann", audit.Origin{}))
	})
	f.release("all", "shoe")
	f.tickAll()
	v := f.Get(guest)
	if v.Status != requests.Done || v.Reservation == nil || v.Reservation.HolderID != "member" || v.Reservation.CustomerID != "ann" {
		t.Errorf("the request that moved is %s with %+v", v.Status, v.Reservation)
	}
	f.wantPosition(other, 1)
	f.CheckInvariants()
}

// Units of a block are offered to the requests that wait for any of them.
func TestWaitingForUnits(t *testing.T) {
	t.Parallel()
	f := newSeveral(t)
	f.tx(func(tx pgx.Tx) error {
		return failure(inventory.AddUnitsTx(t.Context(), tx, f.Tenant, "hall", []inventory.NewUnit{{UnitID: "A1"}, {UnitID: "A2"}}, audit.Origin{}))
	})
	f.Submit("all", "hall", 2)
	r := f.SubmitAs(requestrows.Submission{Kind: requests.Wait, CartID: "waits", VariantID: "hall", Quantity: 2, Units: &requests.Units{Any: true}})
	f.tickAll()
	f.wantPosition(r, 1)
	f.release("all", "hall")
	named := f.SubmitAs(requestrows.Submission{CartID: "named", VariantID: "hall", Quantity: 1, Units: &requests.Units{IDs: []string{"A2"}}})
	f.tickAll()
	f.Want(r, requests.Done, "")
	f.Want(named, requests.Failed, requests.OutOfStock)
	f.CheckInvariants()
}

// A request in line that cannot be written is tried alone, and does not stop the
// others.
func TestPoisonInLine(t *testing.T) {
	t.Parallel()
	f := newSeveral(t)
	f.lanes[0] = f.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{Retry: queues.RetryConfig{AttemptsMax: 3, Backoff: time.Millisecond}}})
	f.Stock("shoe", 2)
	f.Submit("all", "shoe", 2)
	bad, good := f.SubmitAs(waiting("bad", "shoe", 1)), f.SubmitAs(waiting("good", "shoe", 1))
	f.tickAll()
	f.wantPosition(good, 2)
	f.Poison()
	f.release("all", "shoe")
	f.Until("the good request is done", func() bool {
		f.tickAll()
		return f.Get(good).Status == requests.Done
	})
	f.Until("the bad request has failed", func() bool {
		f.Submit("other", "hat", 1)
		f.tickAll()
		return f.Get(bad).Status.Finished()
	})
	f.Want(bad, requests.Failed, requests.InternalError)
	f.CheckInvariants()
}

// Those in line are offered units strictly in order, by several processes at the
// same time, none twice and none left out.
func TestOffersInOrder(t *testing.T) {
	t.Parallel()
	const inLine, freed = 300, 60
	f := newSeveral(t)
	f.Stock("shoe", freed)
	held := make([]requests.Request, freed)
	for i := range held {
		held[i] = f.Submit(fmt.Sprint("held-", i), "shoe", 1)
	}
	line := make([]requests.Request, inLine)
	for i := range line {
		line[i] = f.SubmitAs(waiting(fmt.Sprint("waits-", i), "shoe", 1))
	}
	f.tickAll()
	f.wantPosition(line[inLine-1], inLine)
	stop := f.Run(f.Lane(queues.LaneConfig{}), f.Lane(queues.LaneConfig{}))
	for i := range held {
		f.release(fmt.Sprint("held-", i), "shoe")
	}
	f.Until("all units were offered", func() bool { return f.Get(line[freed-1]).Status == requests.Done })
	stop()
	rows, err := f.DB.Query(t.Context(), `SELECT a.target_id FROM audit_log a JOIN reservation_requests r ON r.request_id = a.target_id
		WHERE a.action = 'reservation.held' AND r.kind = 'wait' ORDER BY a.audit_id`)
	f.Must(err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	f.Must(err)
	want := make([]uuid.UUID, freed)
	for i := range want {
		want[i] = line[i].RequestID
	}
	if !slices.Equal(ids, want) {
		t.Errorf("units were offered out of order, or not to the first %d", freed)
	}
	f.wantPosition(line[freed], 1)
	f.CheckInvariants()
}

// Requests that come, wait, leave and free units at the same time: every unit is
// sold or offered at the end, and no request waits for a unit that is free.
func TestWaitingStorm(t *testing.T) {
	t.Parallel()
	for _, seed := range testkit.Seeds(2) {
		onEachOf(t, "shoe", func(_ *testing.T, f *severalFixture) {
			stop := f.Run(f.Lane(queues.LaneConfig{}), f.HotLane(queues.LaneConfig{}))
			var storm sync.WaitGroup
			for worker := range 8 {
				random := rand.New(rand.NewPCG(seed, uint64(worker)))
				storm.Go(func() {
					for i := range 25 {
						cart := fmt.Sprintf("cart-%d-%d", worker, i%5)
						switch random.IntN(3) {
						case 0:
							f.Submit(cart, "shoe", int32(1+random.IntN(2)))
						case 1:
							f.SubmitAs(waiting(cart, "shoe", int32(1+random.IntN(2))))
						default:
							f.release(cart, "shoe")
						}
					}
				})
			}
			storm.Wait()
			f.Until("no request waits for a unit that is free", func() bool {
				return f.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0 &&
					f.Int(`SELECT stock - reserved FROM inventory_stocks`) < f.Int(`SELECT coalesce(min(quantity), 1000) FROM waiting_requests`)
			})
			stop()
		})
	}
}

// A worker that dies in the middle of an offer leaves nothing behind: the first in
// line is offered the unit, once, by another worker.
func TestOfferDies(t *testing.T) {
	t.Parallel()
	const stepsMin = 4 // the poll; the claim; the decision; the writes
	for step := 1; ; step++ {
		f := newSeveral(t)
		f.Stock("shoe", 1)
		f.Submit("all", "shoe", 1)
		first, second := f.SubmitAs(waiting("first", "shoe", 1)), f.SubmitAs(waiting("second", "shoe", 1))
		f.tickAll()
		f.release("all", "shoe")
		victim, ended := pgtest.NewEnded(t, f.DB, step)
		_, err := testkit.On(t, victim, lanes.Normal).Lane(queues.LaneConfig{}).Tick(t.Context())
		if !ended.Load() {
			if err != nil || step <= stepsMin {
				t.Errorf("a tick that offers a unit has %d steps, want more than %d, and ends with %v", step-1, stepsMin, err)
			}
			return
		}
		f.Until("the first in line has the unit", func() bool {
			f.tickAll()
			return f.Get(first).Status == requests.Done
		})
		f.wantPosition(second, 1)
		f.CheckInvariants()
	}
}
