package requestrows_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// position returns the position that Get reports, -1 for none.
func position(b *testkit.Fixture, r requests.Request) int64 {
	b.TB.Helper()
	if v := b.Get(r); v.Position != nil {
		return *v.Position
	}
	return -1
}

// A position counts only the earlier undecided requests for the same hot
// variant.
func TestPosition(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Exec(`DELETE FROM lane_slots WHERE lane = 'hot' AND slot > 0`) // both variants in one slot
	b.Stock("shoe", 100)
	b.Stock("sock", 100)
	stranger := *b
	stranger.Tenant = uuid.New()
	stranger.Stock("shoe", 1)
	lane := b.Lane(queues.LaneConfig{})
	b.Tick(lane)
	b.Submit("z", "shoe", 1)
	b.Tick(lane) // a decided request no longer counts

	stranger.Submit("a", "shoe", 1)
	first, sock, second, third := b.Submit("a", "shoe", 1), b.Submit("a", "sock", 1), b.Submit("b", "shoe", 1), b.Submit("c", "shoe", 1)
	for i, c := range []struct {
		r    requests.Request
		want int64
	}{{first, 0}, {sock, 0}, {second, 1}, {third, 2}} {
		if got := position(b, c.r); got != c.want {
			t.Errorf("request %d has position %d, want %d", i, got, c.want)
		}
	}
	if _, err := requestrows.MarkProcessing(t.Context(), b.DB, requestrows.RefOf(&first), 1); err != nil {
		t.Fatal(err)
	}
	if got := position(b, third); got != 2 {
		t.Errorf("one ahead is in isolated retry: %d, want 2", got)
	}
	_, err := carts.Remove(t.Context(), b.DB, b.Tenant, "b", "shoe", reservations.Abandoned, shopper)
	pgtest.Must(t, err)
	if got := position(b, third); got != 1 {
		t.Errorf("one ahead was cancelled: %d, want 1", got)
	}
	if got := position(b, second); got != -1 {
		t.Errorf("a cancelled request has position %d", got)
	}
	b.TickUntil(lane, first)
	b.Tick(lane)
	if got := position(b, third); got != -1 {
		t.Errorf("a decided request has position %d", got)
	}
	b.Exec(`INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, cart_id, variant_id, quantity)
		SELECT $1, gen_random_uuid(), 'hot', $2, 'crowd', 'shoe', 1 FROM generate_series(1, $3::integer)`, b.Tenant, first.Slot, requestrows.PositionMax+100)
	if got := position(b, b.Submit("late", "shoe", 1)); got != requestrows.PositionMax {
		t.Errorf("behind a crowd: %d, want %d, which means that many or more", got, requestrows.PositionMax)
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 1)
	held, failed := b.Submit("a", "shoe", 1), b.Submit("b", "shoe", 1)
	if v := b.Get(held); v.Status != requests.Queued || v.Position != nil || v.Reservation != nil {
		t.Errorf("queued in the normal lane: %+v", v)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	v := b.Get(held)
	if v.Status != requests.Done || v.Reservation == nil || v.Reservation.ReservationID != held.RequestID || v.Reservation.Status != reservations.Held {
		t.Errorf("done: %+v, want its hold", v)
	}
	if v := b.Get(failed); v.Reservation != nil || v.Reason != requests.OutOfStock {
		t.Errorf("failed: %+v", v)
	}
	for _, who := range [][2]uuid.UUID{{uuid.New(), held.RequestID}, {b.Tenant, uuid.New()}} {
		if _, err := requestrows.Get(t.Context(), b.DB, who[0], who[1]); !errors.Is(err, requestrows.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
}

// A cart shows its reservations, newest first, its undecided requests, oldest
// first, and its latest failures.
func TestViewCart(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 3)
	var want requests.Cart
	for range 3 {
		b.Submit("a", "shoe", 1)
	}
	for i := range requestrows.FailedMax + 3 {
		r := b.Submit("a", fmt.Sprint("unknown-", i), 1)
		r.Status, r.Reason = requests.Failed, requests.UnknownVariant
		want.Failed = append([]requests.Request{r}, want.Failed...)
	}
	b.Submit("b", "shoe", 1)
	b.Tick(b.Lane(queues.LaneConfig{}))
	want.Failed = want.Failed[:requestrows.FailedMax]
	for range 2 {
		want.Unfinished = append(want.Unfinished, b.Submit("a", "shoe", 1))
	}
	got, err := requestrows.ViewCart(t.Context(), b.DB, b.Tenant, "a", 0, "")
	pgtest.Must(t, err)
	for i := range want.Failed {
		want.Failed[i].UpdatedAt = got.Failed[i].UpdatedAt
	}
	if diff := cmp.Diff(want.Failed, got.Failed); diff != "" {
		t.Errorf("failed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.Unfinished, got.Unfinished); diff != "" {
		t.Errorf("unfinished (-want +got):\n%s", diff)
	}
	if len(got.Reservations) != 3 || got.Reservations[0].ReservationID.String() < got.Reservations[2].ReservationID.String() {
		t.Errorf("reservations %+v, want 3, newest first", got.Reservations)
	}
	for _, none := range []struct {
		tenant uuid.UUID
		cart   string
	}{{uuid.New(), "a"}, {b.Tenant, "unknown"}} {
		got, err := requestrows.ViewCart(t.Context(), b.DB, none.tenant, none.cart, 0, "")
		if err != nil || len(got.Reservations)+len(got.Unfinished)+len(got.Failed) != 0 {
			t.Errorf("an unknown cart: %+v, %v", got, err)
		}
	}
}

// A cart has more than one page. Each reservation and each unfinished request
// is on one page.
func TestViewCartPages(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Stock("shoe", 100)
	var held, queued []uuid.UUID
	for range 5 {
		held = append(held, b.Submit("a", "shoe", 1).RequestID)
	}
	b.Submit("a", "unknown", 1)
	b.Tick(b.Lane(queues.LaneConfig{}))
	for range 3 {
		queued = append(queued, b.Submit("a", "shoe", 1).RequestID)
	}
	slices.Reverse(held) // the newest first
	for _, step := range []struct{ limit, pages int }{{0, 1}, {5, 1}, {4, 2}, {2, 3}, {1, 5}} {
		var gotHeld, gotQueued []uuid.UUID
		cursor, pages := "", 0
		for ; pages == 0 || cursor != ""; pages++ {
			c, err := requestrows.ViewCart(t.Context(), b.DB, b.Tenant, "a", step.limit, cursor)
			pgtest.Must(t, err)
			for _, r := range c.Reservations {
				gotHeld = append(gotHeld, r.ReservationID)
			}
			for _, r := range c.Unfinished {
				gotQueued = append(gotQueued, r.RequestID)
			}
			if len(c.Failed) != 1 {
				t.Errorf("limit %d, page %d has %d failed requests, want 1", step.limit, pages, len(c.Failed))
			}
			cursor = c.NextCursor
		}
		if diff := cmp.Diff(held, gotHeld); diff != "" || pages != step.pages {
			t.Errorf("limit %d: %d pages, want %d; reservations (-want +got):\n%s", step.limit, pages, step.pages, diff)
		}
		if diff := cmp.Diff(queued, gotQueued); diff != "" {
			t.Errorf("limit %d: unfinished (-want +got):\n%s", step.limit, diff)
		}
	}
	for _, bad := range []struct {
		limit  int
		cursor string
		field  string
	}{{-1, "", "limit"}, {requestrows.CartPageMax + 1, "", "limit"}, {0, "x", "cursor"}, {0, "MSwxLDA", "cursor"}, {0, "====", "cursor"}} {
		_, err := requestrows.ViewCart(t.Context(), b.DB, b.Tenant, "a", bad.limit, bad.cursor)
		var wrong *inventory.InvalidError
		if !errors.As(err, &wrong) || wrong.Field != bad.field {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
