package queues_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// severalFixture has variants in both lanes.
type severalFixture struct {
	*testkit.Fixture
	lanes []*queues.Lane
}

func newSeveral(t *testing.T) *severalFixture {
	t.Helper()
	f := testkit.New(t, lanes.Normal)
	return &severalFixture{f, []*queues.Lane{f.Lane(queues.LaneConfig{}), f.HotLane(queues.LaneConfig{})}}
}

// add admits a request of several lines.
func (f *severalFixture) add(cart string, partial bool, lines ...requests.Line) requests.Request {
	f.TB.Helper()
	return f.SubmitAs(requestrows.Submission{Kind: requests.Several, CartID: cart, Lines: &requests.Lines{Items: lines, Partial: partial}})
}

// decide ticks both lanes until the request is finished, and returns it.
func (f *severalFixture) decide(r requests.Request) requests.View {
	f.TB.Helper()
	f.Until("the request is finished", func() bool {
		for _, lane := range f.lanes {
			f.Tick(lane)
		}
		return f.Get(r).Status.Finished()
	})
	f.CheckInvariants()
	return f.Get(r)
}

func (f *severalFixture) hot(variant string, stock int) {
	f.TB.Helper()
	f.Stock(variant, stock)
	f.Pin(variant)
}

func of(variant string, quantity int32) requests.Line {
	return requests.Line{VariantID: variant, Quantity: quantity}
}

// linesOf returns what is held for each line, and its reason: "held/reason".
func linesOf(v requests.View) (all []string) {
	for _, o := range v.Outcomes {
		all = append(all, fmt.Sprintf("%d/%s", o.Held, o.Reason))
	}
	return all
}

func TestSeveralLines(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		partial bool
		lines   []requests.Line
		status  requests.Status
		reason  requests.Reason
		want    []string
	}{
		{"all fit", false, []requests.Line{of("shoe", 2), of("sock", 3)}, requests.Done, "", []string{"2/", "3/"}},
		{"one is short", false, []requests.Line{of("shoe", 2), of("sock", 4)}, requests.Failed, requests.OutOfStock, []string{"0/", "0/out_of_stock"}},
		{"two are short", false, []requests.Line{of("gone", 1), of("shoe", 2), of("sock", 4)}, requests.Failed, requests.UnknownVariant,
			[]string{"0/unknown_variant", "0/", "0/out_of_stock"}},
		{"part", true, []requests.Line{of("shoe", 7), of("sock", 3), of("gone", 1)}, requests.Done, "", []string{"5/out_of_stock", "3/", "0/unknown_variant"}},
		{"part of nothing", true, []requests.Line{of("gone", 1), of("none", 2)}, requests.Failed, requests.UnknownVariant, []string{"0/unknown_variant", "0/out_of_stock"}},
		{"first choice", false, []requests.Line{{OneOf: []string{"sock", "shoe"}, Quantity: 3}}, requests.Done, "", []string{"3/"}},
		{"second choice", false, []requests.Line{{OneOf: []string{"gone", "sock", "shoe"}, Quantity: 4}}, requests.Done, "", []string{"4/"}},
		{"no choice", false, []requests.Line{{OneOf: []string{"gone", "sock", "shoe"}, Quantity: 6}}, requests.Failed, requests.OutOfStock, []string{"0/out_of_stock"}},
		{"split", false, []requests.Line{{OneOf: []string{"sock", "gone", "shoe"}, Quantity: 7, Split: true}}, requests.Done, "", []string{"7/"}},
		{"split too far", false, []requests.Line{{OneOf: []string{"sock", "shoe"}, Quantity: 9, Split: true}}, requests.Failed, requests.OutOfStock, []string{"0/out_of_stock"}},
		{"counted together", false, []requests.Line{of("shoe", 3), {OneOf: []string{"shoe"}, Quantity: 3}}, requests.Failed, requests.OutOfStock, []string{"0/", "0/out_of_stock"}},
	} {
		for _, hot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, hot %t", test.name, hot), func(t *testing.T) {
				t.Parallel()
				f := newSeveral(t)
				f.Stock("sock", 3)
				f.Stock("none", 0)
				f.Stock("shoe", 5)
				if hot {
					f.Pin("shoe")
					f.Pin("none")
				}
				v := f.decide(f.add("cart", test.partial, test.lines...))
				if v.Status != test.status || v.Reason != test.reason {
					t.Errorf("%s %q, want %s %q", v.Status, v.Reason, test.status, test.reason)
				}
				if got := linesOf(v); !slices.Equal(got, test.want) {
					t.Errorf("lines %q, want %q", got, test.want)
				}
				if test.status == requests.Failed {
					for _, variant := range []string{"shoe", "sock"} {
						f.Want(f.Submit("later", variant, 3), requests.Queued, "")
					}
					for _, lane := range f.lanes {
						f.Tick(lane)
					}
					if n := f.Int(`SELECT sum(reserved) FROM inventory_stocks`); n != 6 {
						t.Errorf("%d units are reserved once two others are held, want 6", n)
					}
				}
			})
		}
	}
}

// 64 callers take the same variants in other orders, two of which are hot. There
// is no deadlock, and units are held in whole requests only.
func TestSeveralLinesConcurrently(t *testing.T) {
	t.Parallel()
	f := newSeveral(t)
	const stock, callers = 40, 64
	variants := []string{"a", "b", "c", "d", "e"}
	for i, variant := range variants {
		f.Stock(variant, stock)
		if i < 2 {
			f.Pin(variant)
		}
	}
	stop := f.Run(append(f.lanes, f.Lane(queues.LaneConfig{}), f.HotLane(queues.LaneConfig{}))...)
	var all []requests.Request
	for i := range callers {
		lines := make([]requests.Line, len(variants))
		for j := range variants {
			lines[j] = of(variants[(i*3+j)%len(variants)], 1)
		}
		if i%2 == 1 {
			slices.Reverse(lines)
		}
		all = append(all, f.add(fmt.Sprint("cart-", i), false, lines...))
	}
	f.Until("all are decided", func() bool {
		return f.Int(`SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')`) == 0
	})
	stop()
	f.CheckInvariants()
	done := 0
	for _, r := range all {
		if f.Get(r).Status == requests.Done {
			done++
		}
	}
	if n := f.Int(`SELECT count(*) FROM inventory_stocks WHERE reserved <> $1`, done); n != 0 || done == 0 || done > stock {
		t.Errorf("%d requests are done, and %d stocks have another number reserved", done, n)
	}
	if n := f.Int(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// A process ends after any statement of a scattered request. Another one
// completes the request.
func TestScatteredIsCompleted(t *testing.T) {
	t.Parallel()
	f := newSeveral(t)
	f.hot("shoe", 5)
	f.Stock("sock", 0)
	r := f.add("cart", false, of("shoe", 2), of("sock", 1))
	f.Tick(f.lanes[0])
	if v := f.Get(r); v.Status != requests.Processing {
		t.Fatalf("the request is %s once its parts are queued", v.Status)
	}
	// The parts are decided, and the process ends before it completes the request.
	f.Exec(`UPDATE reservation_requests SET claim_expires_at = clock_timestamp() WHERE request_id = $1 AND open_parts = 0`, r.RequestID)
	v := f.decide(r)
	if v.Reason != requests.OutOfStock || f.Int(`SELECT reserved FROM inventory_stocks WHERE variant_id = 'shoe'`) != 0 {
		t.Errorf("%s %q, %d shoes are reserved", v.Status, v.Reason, f.Int(`SELECT reserved FROM inventory_stocks WHERE variant_id = 'shoe'`))
	}
	if n := f.Int(`SELECT count(*) FROM reservations WHERE release_reason = $1`, string(reservations.ReleaseReason("incomplete"))); n != 1 {
		t.Errorf("%d holds were released as incomplete, want 1", n)
	}
}

// A hold of a scattered request is past its deadline when the request fails for
// that, while an extension of the hold is about to commit.
func TestScatteredReleasesWhatIsExtended(t *testing.T) {
	t.Parallel()
	f := newSeveral(t)
	f.hot("shoe", 5)
	f.Stock("sock", 5)
	f.pauseHot(true)
	r := f.add("cart", false, of("shoe", 1), of("sock", 1))
	f.Until("the sock is held", func() bool {
		f.Tick(f.lanes[0])
		return f.Int(`SELECT count(*) FROM reservations`) == 1
	})
	f.Exec(`UPDATE reservations SET expires_at = clock_timestamp()`)
	extension, err := f.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := extension.Exec(t.Context(), `UPDATE reservations SET expires_at = clock_timestamp() + interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	f.pauseHot(false)
	stop := f.Work(f.lanes...)
	f.Until("the request is finished, or waits for the hold", func() bool {
		return f.Get(r).Status.Finished() ||
			f.Int(`SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))`, extension.Conn().PgConn().PID()) > 0
	})
	if err := extension.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Until("the request is finished", func() bool { return f.Get(r).Status.Finished() })
	stop()
	if v := f.Get(r); v.Reason != requests.ExpiredInQueue {
		t.Errorf("%s %q, want expired_in_queue", v.Status, v.Reason)
	}
	if n := f.Int(`SELECT count(*) FROM reservations WHERE status = 'held'`); n != 0 {
		t.Errorf("%d holds of the failed request are held", n)
	}
	f.CheckInvariants()
}

// A removal of one variant cancels an undecided request of several lines.
func TestRemoveCancelsSeveralLines(t *testing.T) {
	t.Parallel()
	for _, scattered := range []bool{false, true} {
		t.Run(fmt.Sprint("scattered ", scattered), func(t *testing.T) {
			t.Parallel()
			f := newSeveral(t)
			f.Stock("sock", 5)
			f.hot("shoe", 5)
			lines := []requests.Line{of("sock", 1), of("hat", 1)}
			if scattered {
				lines = append(lines, of("shoe", 1))
			}
			f.Stock("hat", 5)
			r := f.add("cart", false, lines...)
			if scattered {
				f.pauseHot(true)
				f.Tick(f.lanes[0])
			}
			removed, err := carts.Remove(t.Context(), f.DB, f.Tenant, "cart", "sock", reservations.CartRemoved, audit.Origin{})
			if err != nil {
				t.Fatal(err)
			}
			if !scattered && !slices.Contains(removed.Cancelled, r.RequestID) {
				t.Error("the request was not cancelled")
			}
			f.pauseHot(false)
			if v := f.decide(r); v.Reason != requests.Cancelled {
				t.Errorf("%s %q, want cancelled", v.Status, v.Reason)
			}
			if n := f.Int(`SELECT sum(reserved) FROM inventory_stocks`); n != 0 {
				t.Errorf("%d units are reserved", n)
			}
		})
	}
}

// pauseHot pauses or resumes the hot lane.
func (f *severalFixture) pauseHot(paused bool) {
	f.TB.Helper()
	f.Must(lanes.Control(f.TB.Context(), f.DB, lanes.Hot, lanes.Patch{Paused: &paused}, audit.Origin{}))
}
