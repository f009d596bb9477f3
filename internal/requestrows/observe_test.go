package requestrows_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// Observe reports the position that Get reports, whatever else is read in the
// same group.
func TestObservePosition(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Exec(`DELETE FROM lane_slots WHERE lane = 'hot' AND slot > 0`) // all variants in one slot
	w, _ := watch(t, b)
	for _, variant := range []string{"shoe", "sock"} {
		b.Stock(variant, 100)
	}
	lane := b.Lane(queues.LaneConfig{})
	b.Tick(lane)
	var rs []requests.Request
	for i := range 12 {
		rs = append(rs, b.Submit(fmt.Sprint("cart-", i), []string{"shoe", "sock", "unknown"}[i%3], 1))
	}
	b.Exec(`INSERT INTO reservation_requests (tenant_id, request_id, lane, slot, cart_id, variant_id, quantity)
		SELECT $1, gen_random_uuid(), 'hot', $2, 'crowd', 'shoe', 1 FROM generate_series(1, $3::integer)`, b.Tenant, rs[0].Slot, requestrows.PositionMax)
	rs = append(rs, b.Submit("late", "shoe", 1))
	var observing sync.WaitGroup
	for _, r := range rs {
		want := b.Get(r)
		observing.Go(func() {
			got, err := w.Observe(t.Context(), b.Tenant, r.RequestID, 100*time.Millisecond)
			switch {
			case err != nil:
				t.Error(err)
			case (got.Position == nil) != (want.Position == nil), got.Position != nil && *got.Position != *want.Position:
				t.Errorf("%s: position %v, want %v", r.CartID, got.Position, want.Position)
			case got.Status != requests.Queued:
				t.Errorf("%s is %s", r.CartID, got.Status)
			}
		})
	}
	observing.Wait()
}

// Observe returns at once when the request is finished, does not exist, or the
// context ends.
func TestObserveEnds(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	w, _ := watch(t, b)
	r := b.Submit("a", "shoe", 1)
	got := make(chan requests.View, 1)
	go func() {
		v, err := w.Observe(t.Context(), b.Tenant, r.RequestID, time.Minute)
		if err != nil {
			t.Error(err)
		}
		got <- v
	}()
	pgtest.Until(t, "a caller waits", func() bool { return w.Waiting() == 1 })
	finish(t, b, true, r)
	if v := <-got; v.Status != requests.Done {
		t.Errorf("woken with %s", v.Status)
	}
	for _, who := range [][2]uuid.UUID{{uuid.New(), r.RequestID}, {b.Tenant, uuid.New()}} {
		if _, err := w.Observe(t.Context(), who[0], who[1], time.Minute); !errors.Is(err, requestrows.ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := w.Observe(ctx, b.Tenant, b.Submit("a", "shoe", 1).RequestID, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's error", err)
	}
	if n := w.Waiting(); n != 0 {
		t.Errorf("callers still wait for %d requests", n)
	}
}
