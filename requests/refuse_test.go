package requests_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// queued puts n requests of a tenant for a variant into the status table.
func queued(t *testing.T, b *lanetest.Bench, tenant uuid.UUID, variant string, n int) {
	t.Helper()
	must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		for i := range n {
			s := add(fmt.Sprint("cart-", i), variant, "")
			s.TenantID = tenant
			if _, err := requests.SubmitTx(t.Context(), tx, b.Bell, s); err != nil {
				return err
			}
		}
		return nil
	}))
}

type submitter interface {
	Submit(ctx context.Context, s requests.Submission) (requests.Request, error)
}

func submit(t *testing.T, in submitter, tenant uuid.UUID, variant, key string) (requests.Request, error) {
	t.Helper()
	s := add("cart", variant, key)
	s.TenantID = tenant
	return in.Submit(t.Context(), s)
}

// wantRefusal fails the test unless err is a refusal like that; RetryAfter is held against its bounds only if 0.
func wantRefusal(t *testing.T, err error, want requests.RefusedError) {
	t.Helper()
	var got *requests.RefusedError
	if !errors.As(err, &got) {
		t.Fatalf("%v, want a refusal", err)
	}
	if got.RetryAfter < time.Second || got.RetryAfter > time.Minute || got.RetryAfter%time.Second != 0 {
		t.Errorf("try again after %s", got.RetryAfter)
	}
	if want.RetryAfter == 0 {
		want.RetryAfter = got.RetryAfter
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
	if errors.Is(err, requests.ErrOverLimit) != want.Own || errors.Is(err, requests.ErrOverloaded) == want.Own {
		t.Errorf("%v is not of one kind", err)
	}
}

const everythingSQL = `
SELECT (SELECT count(*) FROM reservation_requests) + (SELECT count(*) FROM river.river_job) + (SELECT last_value FROM reservation_requests_sequence_seq)`

// A tenant past its share is refused, and nothing of the call is kept; at the same moment another one is accepted, and so
// is the first in the other lane. Once the backlog is decided, the same call under the same key succeeds.
func TestRefusesItsOwnBacklog(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Stock("shoe", 1000)
	other := uuid.New()
	queued(t, b, b.Tenant, "shoe", 20)
	in := newBounded(t, b, requests.IntakeConfig{DepthMax: 40})
	before := b.Int(everythingSQL)
	for range 3 {
		_, err := submit(t, in, b.Tenant, "shoe", "key")
		wantRefusal(t, err, requests.RefusedError{Own: true, Why: requests.WhyDepth, Lane: requests.Hot})
		_, err = submit(t, in, b.Tenant, "shoe", "")
		wantRefusal(t, err, requests.RefusedError{Own: true, Why: requests.WhyDepth, Lane: requests.Hot})
	}
	if after := b.Int(everythingSQL); after != before {
		t.Error("a refused call left something behind, or drew a number")
	}
	if r, err := submit(t, in, b.Tenant, "sock", ""); err != nil || r.Lane != requests.Normal {
		t.Errorf("in the other lane: %+v, %v", r, err)
	}
	if _, err := submit(t, in, other, "shoe", ""); err != nil {
		t.Errorf("the other tenant: %v", err)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	in.count(t)
	if _, err := submit(t, in, b.Tenant, "shoe", "key"); err != nil {
		t.Errorf("after the backlog: %v", err)
	}
}

// Whoever is refused while its key is known gets its request; a key that stands for another call stays refused for that.
func TestRefusedButKnown(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in := newBounded(t, b, requests.IntakeConfig{DepthMax: 10})
	first, err := submit(t, in, b.Tenant, "shoe", "key")
	must(t, err)
	queued(t, b, b.Tenant, "shoe", 10)
	in.count(t)
	if again, err := submit(t, in, b.Tenant, "shoe", "key"); err != nil || again.RequestID != first.RequestID {
		t.Errorf("%+v, %v; want the first request", again, err)
	}
	_, err = submit(t, in, uuid.New(), "shoe", "key")
	wantRefusal(t, err, requests.RefusedError{Why: requests.WhyDepth, Lane: requests.Normal})
	s := fingerprinted(add("cart", "shoe", "key"), "other body")
	s.TenantID = b.Tenant
	if _, err := in.Submit(t.Context(), s); !errors.Is(err, requests.ErrKeyReused) {
		t.Errorf("another call under the key: %v", err)
	}
}

// The more tenants have a backlog, the less each may have, and a newcomer finds room; where all of it is taken by many,
// nobody is told that it is theirs.
func TestShares(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	crowds := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	in := newBounded(t, b, requests.IntakeConfig{DepthMax: 100})
	for i, want := range []int{50, 25, 13} {
		in.count(t)
		n := 0
		for _, err := submit(t, in, crowds[i], "shoe", ""); err == nil; n++ {
			_, err = submit(t, in, crowds[i], "shoe", "")
		}
		if n != want {
			t.Errorf("tenant %d was let in %d times, want %d: as much as is free", i, n, want)
		}
	}
	if _, err := submit(t, in, uuid.New(), "shoe", ""); err != nil {
		t.Errorf("a newcomer: %v", err)
	}
	for range 11 {
		queued(t, b, uuid.New(), "shoe", 1)
	}
	in.count(t)
	_, err := submit(t, in, uuid.New(), "shoe", "")
	wantRefusal(t, err, requests.RefusedError{Why: requests.WhyDepth, Lane: requests.Normal})

	whole := newBounded(t, b, requests.IntakeConfig{DepthMax: 101, TenantSharePercent: 100})
	if _, err := submit(t, whole, crowds[0], "shoe", ""); err != nil {
		t.Errorf("a tenant that may fill all: %v", err)
	}
	_, err = submit(t, whole, crowds[0], "shoe", "")
	wantRefusal(t, err, requests.RefusedError{Own: true, Why: requests.WhyDepth, Lane: requests.Normal})
}

// What waits too long shuts its stream, and no other slot's. It is the tenant's own where nobody else waits and the lane is
// decided all the same.
func TestRefusesByAge(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	var shut, open string // in different slots
	for i := 0; open == ""; i++ {
		variant := fmt.Sprint("v", i)
		b.Stock(variant, 10)
		switch slot := b.Int(`SELECT slot FROM hot_variants WHERE variant_id = $1`, variant); {
		case shut == "" && slot == 1:
			shut = variant
		case shut != "" && slot != 1:
			open = variant
		}
	}
	queued(t, b, b.Tenant, shut, 2)
	in := newBounded(t, b, requests.IntakeConfig{AgeMax: time.Hour})
	if _, err := submit(t, in, b.Tenant, shut, ""); err != nil {
		t.Errorf("before it is old: %v", err)
	}
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '61 minutes' WHERE sequence = 1`)
	in.count(t)
	_, err := submit(t, in, b.Tenant, shut, "")
	wantRefusal(t, err, requests.RefusedError{Why: requests.WhyAge, Lane: requests.Hot, RetryAfter: time.Minute})
	if _, err := submit(t, in, b.Tenant, open, ""); err != nil {
		t.Errorf("another slot: %v", err)
	}
	b.Exec(`UPDATE lane_slots SET rate = 1, window_started_at = clock_timestamp() WHERE lane = 'hot' AND slot = -1`)
	in.count(t)
	_, err = submit(t, in, b.Tenant, shut, "")
	wantRefusal(t, err, requests.RefusedError{Own: true, Why: requests.WhyAge, Lane: requests.Hot, RetryAfter: 4 * time.Second})

	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{AgeMax: time.Hour}})
	b.Tick(lane)
	in.count(t)
	if _, err := submit(t, in, b.Tenant, shut, ""); err != nil {
		t.Errorf("once it is given up: %v", err)
	}
}

// What was admitted to the normal lane for a variant that is moving waits for its hot slot. Where that stands still it
// shuts the slot, and not the normal lane.
func TestMovingVariantShutsItsSlotOnly(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in := newBounded(t, b, requests.IntakeConfig{AgeMax: time.Hour, DepthMax: 40})
	judged := func(state string) {
		t.Helper()
		in.count(t)
		if r, err := submit(t, in, uuid.New(), "sock", ""); err != nil || r.Lane != requests.Normal {
			t.Errorf("%s, another tenant: %+v, %v", state, r, err)
		}
		_, err := submit(t, in, b.Tenant, "shoe", "")
		wantRefusal(t, err, requests.RefusedError{Why: requests.WhyAge, Lane: requests.Hot, RetryAfter: time.Minute})
	}
	must(t, queues.Control(t.Context(), b.DB, requests.Hot, queues.LanePatch{Paused: new(true)}, shopper))
	queued(t, b, b.Tenant, "shoe", 12)
	must(t, hot.Pin(t.Context(), b.DB, b.Bell, b.Tenant, "shoe"))
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '61 minutes'`)
	judged("on its way in")
	must(t, hot.Unpin(t.Context(), b.DB, b.Bell, b.Tenant, "shoe"))
	queued(t, b, b.Tenant, "shoe", 1)
	judged("on its way out")
}

// A paused lane takes requests up to its bound, and says that it is not known when to try again.
func TestPausedLaneFills(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	must(t, queues.Control(t.Context(), b.DB, requests.Normal, queues.LanePatch{Paused: new(true)}, shopper))
	in := newBounded(t, b, requests.IntakeConfig{DepthMax: 20})
	for i := range 10 {
		if _, err := submit(t, in, b.Tenant, "shoe", ""); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	b.Exec(`UPDATE lane_slots SET rate = 1000, window_started_at = clock_timestamp() WHERE slot = -1`)
	in.count(t)
	_, err := submit(t, in, b.Tenant, "shoe", "")
	wantRefusal(t, err, requests.RefusedError{Own: true, Why: requests.WhyDepth, Lane: requests.Normal, RetryAfter: time.Minute})
}

// A refused caller is told how long what waits takes at the measured rate, within bounds. Under a cap no more is let in
// than can be decided before it is too old.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	queued(t, b, b.Tenant, "shoe", 30)
	in := newBounded(t, b, requests.IntakeConfig{DepthMax: 60, AgeMax: 10 * time.Second})
	for rate, want := range map[float64]time.Duration{0: time.Minute, 0.1: time.Minute, 4: 8 * time.Second, 29: 2 * time.Second, 30: time.Second, 1e6: time.Second} {
		b.Exec(`UPDATE lane_slots SET rate = $1, window_started_at = clock_timestamp() WHERE slot = -1`, rate)
		in.count(t)
		_, err := submit(t, in, b.Tenant, "shoe", "")
		wantRefusal(t, err, requests.RefusedError{Own: true, Why: requests.WhyDepth, Lane: requests.Normal, RetryAfter: want})
	}
	b.Exec(`UPDATE lane_slots SET rate = 1000, window_started_at = clock_timestamp() - interval '1 minute' WHERE slot = -1`)
	in.count(t)
	_, err := submit(t, in, b.Tenant, "shoe", "")
	wantRefusal(t, err, requests.RefusedError{Own: true, Why: requests.WhyDepth, Lane: requests.Normal, RetryAfter: time.Minute})

	wide := newBounded(t, b, requests.IntakeConfig{AgeMax: 10 * time.Second})
	for rateCap, refused := range map[int]bool{5: true, 6: false} { // 50 and 60 in ten seconds, of which half
		b.Exec(`UPDATE lane_slots SET rate_cap = $1 WHERE slot = -1`, rateCap)
		b.Exec(`DELETE FROM reservation_requests WHERE sequence > 29`)
		wide.count(t)
		if _, err := submit(t, wide, b.Tenant, "shoe", ""); errors.Is(err, requests.ErrOverLimit) != refused || err != nil && !refused {
			t.Errorf("with a cap of %d: %v", rateCap, err)
		}
	}
}

func wantOverLimit(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, requests.ErrOverLimit) {
		t.Errorf("%v, want ErrOverLimit", err)
	}
}
