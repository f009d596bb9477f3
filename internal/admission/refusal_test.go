package admission_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// queued puts n requests of a tenant for a variant into the status table.
func queued(t *testing.T, b *testkit.Fixture, tenant uuid.UUID, variant string, n int) {
	t.Helper()
	pgtest.Must(t, pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		for i := range n {
			s := add(fmt.Sprint("cart-", i), variant, "")
			s.TenantID = tenant
			if _, err := admission.SubmitTx(t.Context(), tx, b.Inserter, s); err != nil {
				return err
			}
		}
		return nil
	}))
}

type submitter interface {
	Submit(ctx context.Context, s requestrows.Submission) (requests.Request, error)
}

func submit(t *testing.T, in submitter, tenant uuid.UUID, variant, key string) (requests.Request, error) {
	t.Helper()
	s := add("cart", variant, key)
	s.TenantID = tenant
	return in.Submit(t.Context(), s)
}

// wantRefusal fails the test unless err is the refusal want. If RetryAfter of
// want is 0, only its bounds are checked.
func wantRefusal(t *testing.T, err error, want admission.RefusedError) {
	t.Helper()
	var got *admission.RefusedError
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
	if errors.Is(err, admission.ErrOverLimit) != want.TenantOnly || errors.Is(err, admission.ErrOverloaded) == want.TenantOnly {
		t.Errorf("%v is not exactly one kind of refusal", err)
	}
}

const everythingSQL = `
SELECT (SELECT count(*) FROM reservation_requests) + (SELECT count(*) FROM river.river_job) + (SELECT last_value FROM reservation_requests_sequence_seq)`

// A tenant above its share is refused, and nothing of the call is stored.
// Meanwhile another tenant is accepted, and so is the first one in the other
// lane. Once the backlog is decided, the same call under the same key succeeds.
func TestRefusesItsOwnBacklog(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Stock("shoe", 1000)
	other := uuid.New()
	queued(t, b, b.Tenant, "shoe", 20)
	in := newBounded(t, b, admission.IntakeConfig{DepthMax: 40})
	before := b.Int(everythingSQL)
	for range 3 {
		_, err := submit(t, in, b.Tenant, "shoe", "key")
		wantRefusal(t, err, admission.RefusedError{TenantOnly: true, Why: admission.WhyDepth, Lane: lanes.Hot})
		_, err = submit(t, in, b.Tenant, "shoe", "")
		wantRefusal(t, err, admission.RefusedError{TenantOnly: true, Why: admission.WhyDepth, Lane: lanes.Hot})
	}
	if after := b.Int(everythingSQL); after != before {
		t.Error("a refused call left a row, or drew a number")
	}
	if r, err := submit(t, in, b.Tenant, "sock", ""); err != nil || r.Lane != lanes.Normal {
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

// A refused caller whose key is known receives its request. If the key belongs
// to another call, the caller receives ErrKeyReused.
func TestRefusedButKnown(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in := newBounded(t, b, admission.IntakeConfig{DepthMax: 10})
	first, err := submit(t, in, b.Tenant, "shoe", "key")
	pgtest.Must(t, err)
	queued(t, b, b.Tenant, "shoe", 10)
	in.count(t)
	if again, err := submit(t, in, b.Tenant, "shoe", "key"); err != nil || again.RequestID != first.RequestID {
		t.Errorf("%+v, %v; want the first request", again, err)
	}
	_, err = submit(t, in, uuid.New(), "shoe", "key")
	wantRefusal(t, err, admission.RefusedError{Why: admission.WhyDepth, Lane: lanes.Normal})
	s := fingerprinted(add("cart", "shoe", "key"), "other body")
	s.TenantID = b.Tenant
	if _, err := in.Submit(t.Context(), s); !errors.Is(err, requestrows.ErrKeyReused) {
		t.Errorf("another call under the key: %v", err)
	}
}

// The more tenants have a backlog, the smaller is the share of each, and a new
// tenant finds capacity. If many tenants use all of it, no refusal has TenantOnly
// set.
func TestShares(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	crowds := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	in := newBounded(t, b, admission.IntakeConfig{DepthMax: 100})
	for i, want := range []int{50, 25, 13} {
		in.count(t)
		n := 0
		for _, err := submit(t, in, crowds[i], "shoe", ""); err == nil; n++ {
			_, err = submit(t, in, crowds[i], "shoe", "")
		}
		if n != want {
			t.Errorf("tenant %d was admitted %d times, want %d, the free depth", i, n, want)
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
	wantRefusal(t, err, admission.RefusedError{Why: admission.WhyDepth, Lane: lanes.Normal})

	whole := newBounded(t, b, admission.IntakeConfig{DepthMax: 101, TenantSharePercent: 100})
	if _, err := submit(t, whole, crowds[0], "shoe", ""); err != nil {
		t.Errorf("a tenant that may fill all: %v", err)
	}
	_, err = submit(t, whole, crowds[0], "shoe", "")
	wantRefusal(t, err, admission.RefusedError{TenantOnly: true, Why: admission.WhyDepth, Lane: lanes.Normal})
}

// A request that waits too long closes its stream to new requests, but not the
// streams of other slots. The refusal has TenantOnly set if no other tenant waits and
// the lane
// is not stopped.
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
	in := newBounded(t, b, admission.IntakeConfig{AgeMax: time.Hour})
	if _, err := submit(t, in, b.Tenant, shut, ""); err != nil {
		t.Errorf("before it is old: %v", err)
	}
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '61 minutes' WHERE sequence = 1`)
	in.count(t)
	_, err := submit(t, in, b.Tenant, shut, "")
	wantRefusal(t, err, admission.RefusedError{Why: admission.WhyAge, Lane: lanes.Hot, RetryAfter: time.Minute})
	if _, err := submit(t, in, b.Tenant, open, ""); err != nil {
		t.Errorf("another slot: %v", err)
	}
	b.Exec(`UPDATE lane_slots SET rate = 1, window_started_at = clock_timestamp() WHERE lane = 'hot' AND slot = -1`)
	in.count(t)
	_, err = submit(t, in, b.Tenant, shut, "")
	wantRefusal(t, err, admission.RefusedError{TenantOnly: true, Why: admission.WhyAge, Lane: lanes.Hot, RetryAfter: 4 * time.Second})

	lane := b.Lane(queues.LaneConfig{DrainConfig: queues.DrainConfig{AgeMax: time.Hour}})
	b.Tick(lane)
	in.count(t)
	if _, err := submit(t, in, b.Tenant, shut, ""); err != nil {
		t.Errorf("once the old request has ended: %v", err)
	}
}

// Requests in the normal lane for a variant that moves wait for its hot slot.
// If that slot is not drained, they close the slot to new requests, but not the
// normal lane.
func TestMovingVariantClosesItsSlotOnly(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	in := newBounded(t, b, admission.IntakeConfig{AgeMax: time.Hour, DepthMax: 40})
	judged := func(state string) {
		t.Helper()
		in.count(t)
		if r, err := submit(t, in, uuid.New(), "sock", ""); err != nil || r.Lane != lanes.Normal {
			t.Errorf("%s, another tenant: %+v, %v", state, r, err)
		}
		_, err := submit(t, in, b.Tenant, "shoe", "")
		wantRefusal(t, err, admission.RefusedError{Why: admission.WhyAge, Lane: lanes.Hot, RetryAfter: time.Minute})
	}
	pgtest.Must(t, lanes.Control(t.Context(), b.DB, lanes.Hot, lanes.Patch{Paused: new(true)}, shopper))
	queued(t, b, b.Tenant, "shoe", 12)
	b.Pin("shoe")
	b.Exec(`UPDATE reservation_requests SET created_at = created_at - interval '61 minutes'`)
	judged("entering")
	pgtest.Must(t, lanes.Unpin(t.Context(), b.DB, b.Inserter, b.Tenant, "shoe"))
	queued(t, b, b.Tenant, "shoe", 1)
	judged("leaving")
}

// A paused lane accepts requests up to its bound. Then it refuses them with the
// longest RetryAfter.
func TestPausedLaneFills(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	pgtest.Must(t, lanes.Control(t.Context(), b.DB, lanes.Normal, lanes.Patch{Paused: new(true)}, shopper))
	in := newBounded(t, b, admission.IntakeConfig{DepthMax: 20})
	for i := range 10 {
		if _, err := submit(t, in, b.Tenant, "shoe", ""); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
	b.Exec(`UPDATE lane_slots SET rate = 1000, window_started_at = clock_timestamp() WHERE slot = -1`)
	in.count(t)
	_, err := submit(t, in, b.Tenant, "shoe", "")
	wantRefusal(t, err, admission.RefusedError{TenantOnly: true, Why: admission.WhyDepth, Lane: lanes.Normal, RetryAfter: time.Minute})
}

// RetryAfter is the time to decide the waiting requests at the measured rate,
// within bounds. Under a rate cap, no more requests are admitted than can be
// decided before they are too old.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	queued(t, b, b.Tenant, "shoe", 30)
	in := newBounded(t, b, admission.IntakeConfig{DepthMax: 60, AgeMax: 10 * time.Second})
	for rate, want := range map[float64]time.Duration{0: time.Minute, 0.1: time.Minute, 4: 8 * time.Second, 29: 2 * time.Second, 30: time.Second, 1e6: time.Second} {
		b.Exec(`UPDATE lane_slots SET rate = $1, window_started_at = clock_timestamp() WHERE slot = -1`, rate)
		in.count(t)
		_, err := submit(t, in, b.Tenant, "shoe", "")
		wantRefusal(t, err, admission.RefusedError{TenantOnly: true, Why: admission.WhyDepth, Lane: lanes.Normal, RetryAfter: want})
	}
	b.Exec(`UPDATE lane_slots SET rate = 1000, window_started_at = clock_timestamp() - interval '1 minute' WHERE slot = -1`)
	in.count(t)
	_, err := submit(t, in, b.Tenant, "shoe", "")
	wantRefusal(t, err, admission.RefusedError{TenantOnly: true, Why: admission.WhyDepth, Lane: lanes.Normal, RetryAfter: time.Minute})

	wide := newBounded(t, b, admission.IntakeConfig{AgeMax: 10 * time.Second})
	for rateCap, refused := range map[int]bool{5: true, 6: false} { // 50 and 60 in ten seconds, of which half
		b.Exec(`UPDATE lane_slots SET rate_cap = $1 WHERE slot = -1`, rateCap)
		b.Exec(`DELETE FROM reservation_requests WHERE sequence > 29`)
		wide.count(t)
		if _, err := submit(t, wide, b.Tenant, "shoe", ""); errors.Is(err, admission.ErrOverLimit) != refused || err != nil && !refused {
			t.Errorf("with a cap of %d: %v", rateCap, err)
		}
	}
}

func wantOverLimit(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, admission.ErrOverLimit) {
		t.Errorf("%v, want ErrOverLimit", err)
	}
}
