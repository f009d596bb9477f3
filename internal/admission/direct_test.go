package admission_test

import (
	"context"
	"fmt"
	"sync"
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
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// newDeciding returns a fixture of the normal lane, and a config whose intake
// decides groups directly.
func newDeciding(t *testing.T) (*testkit.Fixture, admission.IntakeConfig) {
	t.Helper()
	b := newNormal(t)
	b.Decider = b.NewDecider(queues.DrainConfig{})
	return b, admission.IntakeConfig{Decider: b.Decider}
}

// waiting returns a submission of one unit whose caller waits.
func waiting(cart, variant, key string) requestrows.Submission {
	s := add(cart, variant, key)
	s.Waits = true
	return s
}

// set returns a waiting submission that changes a quantity.
func set(cart, variant string, quantity int32) requestrows.Submission {
	return requestrows.Submission{Kind: requests.Set, CartID: cart, VariantID: variant, Quantity: quantity, Waits: true}
}

// A group is decided as it is admitted if all of its callers wait and all of
// its requests are new. Otherwise its new requests stay queued, and a drain
// decides them.
func TestGroupIsDecidedAsItIsAdmitted(t *testing.T) {
	t.Parallel()
	first := waiting("first", "shoe", "k")
	first.RequestID = uuid.New()
	repeated, renamed := waiting("first", "shoe", "k"), waiting("first", "shoe", "")
	renamed.RequestID = first.RequestID
	twice := waiting("d", "shoe", "")
	twice.RequestID = uuid.New()
	for name, tc := range map[string]struct {
		group   []requestrows.Submission
		decided int64
		queued  int64
	}{
		"all wait":                      {[]requestrows.Submission{waiting("a", "shoe", ""), waiting("b", "shoe", "l"), waiting("c", "sock", "")}, 3, 0},
		"one does not wait":             {[]requestrows.Submission{waiting("a", "shoe", ""), add("b", "shoe", ""), waiting("c", "sock", "")}, 0, 3},
		"a key was used before":         {[]requestrows.Submission{waiting("a", "shoe", ""), repeated, waiting("c", "sock", "")}, 0, 2},
		"a request id was used":         {[]requestrows.Submission{waiting("a", "shoe", ""), renamed, waiting("c", "sock", "")}, 0, 2},
		"two requests have one id":      {[]requestrows.Submission{waiting("a", "shoe", ""), twice, twice}, 0, 2},
		"one is for an unknown variant": {[]requestrows.Submission{waiting("a", "shoe", ""), waiting("b", "gone", ""), waiting("c", "sock", "")}, 2, 1},
		"one is for a digital variant":  {[]requestrows.Submission{waiting("a", "shoe", ""), waiting("b", "song", ""), waiting("c", "sock", "")}, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, config := newDeciding(t)
			b.Stock("shoe", 10)
			b.Stock("sock", 10)
			b.Stock("song", 0)
			b.Exec(`UPDATE inventory_stocks SET tracked = false WHERE variant_id = 'song'`)
			before := b.SubmitDirect(b.Intake(config), first)
			if before.Status != requests.Done {
				t.Fatalf("the first request is %s", before.Status)
			}
			for i, a := range gather(t, b, config, tc.group).run() {
				pgtest.Must(t, a.err)
				if diff := cmp.Diff(b.Get(a.request).Request, a.request); diff != "" {
					t.Errorf("request %d differs from what the caller received:\n%s", i, diff)
				}
				if is := a.request.RequestID == before.RequestID; is != (tc.group[i].CartID == "first") {
					t.Errorf("request %d is %s", i, a.request.RequestID)
				}
			}
			if n := b.Decider.Decided() - 1; n != tc.decided {
				t.Errorf("%d were decided as they were admitted, want %d", n, tc.decided)
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != tc.queued {
				t.Errorf("%d are queued, want %d", n, tc.queued)
			}
			b.Exec(`DELETE FROM reservation_requests WHERE variant_id = 'song'`) // done without a hold
			b.Tick(b.Lane(queues.LaneConfig{}))
			if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != 0 {
				t.Errorf("%d are left", n)
			}
			b.CheckInvariants()
		})
	}
}

// newDiverted returns the fixture of another tenant, which is diverted and has 10
// shoes.
func newDiverted(b *testkit.Fixture) *testkit.Fixture {
	b.TB.Helper()
	diverted := *b
	diverted.Tenant = uuid.New()
	diverted.Exec(`INSERT INTO diverted_tenants (tenant_id, slot, why) VALUES ($1, 1, 'test')`, diverted.Tenant)
	diverted.Stock("shoe", 10)
	return &diverted
}

// The requests of a group that are not blocked are decided. The others stay
// queued.
func TestPartOfGroupIsDecided(t *testing.T) {
	t.Parallel()
	b, config := newDeciding(t)
	b.Stock("shoe", 10)
	b.Stock("sock", 10)
	stock := b.LockStock("sock")
	diverted := newDiverted(b)
	diverted.SubmitAs(add("x", "shoe", "")) // in the diverted stream
	neighbour := waiting("y", "shoe", "")
	neighbour.TenantID = diverted.Tenant
	answers := gather(t, b, config, []requestrows.Submission{waiting("a", "shoe", ""), waiting("a", "sock", ""), neighbour, waiting("b", "shoe", "")}).run()
	for i, want := range []requests.Status{requests.Done, requests.Queued, requests.Queued, requests.Done} {
		pgtest.Must(t, answers[i].err)
		if got := answers[i].view; got.Status != want || (got.Reservation != nil) != (want == requests.Done) {
			t.Errorf("request %d: %+v, want %s", i, got, want)
		}
	}
	stock.Release()
	lane := b.Lane(queues.LaneConfig{})
	b.TickUntil(lane, answers[1].request)
	b.Want(answers[1].request, requests.Done, "")
	if n := b.Int(`SELECT count(*) FROM reservations`); n != 5 {
		t.Errorf("%d holds, want 5", n)
	}
	b.CheckInvariants()
}

// A group may have requests of both streams of the normal lane. The requests of
// one stream do not prevent the decision of the other's.
func TestGroupOfBothStreamsIsDecided(t *testing.T) {
	t.Parallel()
	b, config := newDeciding(t)
	b.Stock("shoe", 10)
	diverted := waiting("a", "shoe", "")
	diverted.TenantID = newDiverted(b).Tenant
	for i, a := range gather(t, b, config, []requestrows.Submission{waiting("a", "shoe", ""), diverted, waiting("b", "shoe", "")}).run() {
		pgtest.Must(t, a.err)
		if a.view.Status != requests.Done {
			t.Errorf("request %d in stream %d is %s, want done", i, a.view.Slot, a.view.Status)
		}
	}
	b.CheckInvariants()
}

// A caller whose request was decided directly receives the view that Get
// returns afterwards.
func TestViewOfDirectDecision(t *testing.T) {
	t.Parallel()
	b, config := newDeciding(t)
	b.Stock("shoe", 10)
	b.Stock("rare", 1)
	b.Stock("few", 10)
	b.Exec(`UPDATE inventory_stocks SET max_per_cart = 2, hold_ttl_seconds = 77 WHERE variant_id = 'few'`)
	b.Stock("song", 0)
	b.Exec(`UPDATE inventory_stocks SET tracked = false WHERE variant_id = 'song'`)
	b.Stock("late", 0)
	b.Exec(`UPDATE inventory_stocks SET backorder = true WHERE variant_id = 'late'`)

	named := waiting("a", "shoe", "key")
	named.ActorID, named.CorrelationID, named.RetryOf = "hf_shop00", "c-7", uuid.New()
	for _, round := range []struct {
		name   string
		group  []requestrows.Submission
		status []requests.Status
		reason []requests.Reason
		ended  int // the index of the request whose hold another request of the group replaces; -1 for none
	}{
		{"held", []requestrows.Submission{named}, []requests.Status{requests.Done}, []requests.Reason{""}, -1},
		{"replaces a hold", []requestrows.Submission{set("a", "shoe", 3)}, []requests.Status{requests.Done}, []requests.Reason{""}, -1},
		{
			"an add and a set of one cart", []requestrows.Submission{waiting("b", "shoe", ""), set("b", "shoe", 2), waiting("c", "shoe", "")},
			[]requests.Status{requests.Done, requests.Done, requests.Done},
			[]requests.Reason{"", "", ""}, 0,
		},
		{"out of stock", []requestrows.Submission{waiting("a", "rare", ""), waiting("b", "rare", "")}, []requests.Status{requests.Done, requests.Failed}, []requests.Reason{"", requests.OutOfStock}, -1},
		{"a set that does not fit", []requestrows.Submission{set("a", "rare", 2)}, []requests.Status{requests.Failed}, []requests.Reason{requests.OutOfStock}, -1},
		{"limit exceeded", []requestrows.Submission{set("a", "few", 2), waiting("a", "few", "")}, []requests.Status{requests.Done, requests.Failed}, []requests.Reason{"", requests.LimitExceeded}, -1},
		{"digital, and not digital", []requestrows.Submission{waiting("a", "song", ""), waiting("d", "shoe", "")}, []requests.Status{requests.Done, requests.Done}, []requests.Reason{"", ""}, -1},
		{"backorder", []requestrows.Submission{set("a", "late", 5)}, []requests.Status{requests.Done}, []requests.Reason{""}, -1},
	} {
		answers := gather(t, b, config, round.group).run()
		for i, a := range answers {
			pgtest.Must(t, a.err)
			got, want := a.view, b.Get(a.request)
			if got.VariantID == "song" {
				want.Reservation = nil
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: request %d: (-Get +the caller's view)\n%s", round.name, i, diff)
			}
			if got.Status != round.status[i] || got.Reason != round.reason[i] {
				t.Errorf("%s: request %d is %s %q, want %s %q", round.name, i, got.Status, got.Reason, round.status[i], round.reason[i])
			}
			if replaced := got.Reservation != nil && got.Reservation.ReleaseReason == reservationrows.Replaced; replaced != (i == round.ended) {
				t.Errorf("%s: request %d was replaced: %t", round.name, i, replaced)
			}
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`); n != 0 {
		t.Errorf("%d are queued, want none", n)
	}
}

// The lifetime of a hold that replaces another one counts from the first hold,
// in the view too. The same is true if another group replaces the hold and its
// view is read again.
func TestReplayOfDirectDecision(t *testing.T) {
	t.Parallel()
	b, config := newDeciding(t)
	b.Stock("shoe", 10)
	in := b.Intake(config)
	first := b.SubmitDirect(in, waiting("a", "shoe", "key"))
	second := b.SubmitDirect(in, set("a", "shoe", 4))
	if !second.Reservation.FirstHeldAt.Equal(first.Reservation.FirstHeldAt) || !second.Reservation.HeldAt.After(first.Reservation.HeldAt) {
		t.Errorf("first %+v, then %+v", first.Reservation, second.Reservation)
	}
	again := b.SubmitDirect(in, waiting("a", "shoe", "key"))
	if diff := cmp.Diff(b.Get(first.Request).Request, again.Request); diff != "" || again.RequestID != first.RequestID {
		t.Errorf("the repetition differs from the request:\n%s", diff)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	b.CheckInvariants()
}

// If another transaction has locked a hold of the cart, callers wait no longer
// than the connection's lock_timeout.
func TestDirectDecisionBehindLockedHold(t *testing.T) {
	t.Parallel()
	b, config := newDeciding(t)
	b.Stock("shoe", 10)
	b.Exec(`UPDATE inventory_stocks SET max_per_cart = 5 WHERE variant_id = 'shoe'`)
	held := b.SubmitDirect(b.Intake(config), waiting("a", "shoe", ""))
	extension := b.Lock(`SELECT FROM reservations WHERE reservation_id = $1 FOR NO KEY UPDATE`, held.RequestID)

	in, _ := running(t, b.With("lock_timeout", "100ms").DB, b.Inserter, config)
	v := b.SubmitDirect(in, waiting("a", "shoe", ""))
	if v.Status != requests.Queued { // and while the hold is locked
		t.Errorf("%s, want queued", v.Status)
	}
	extension.Release()
	b.TickUntil(b.Lane(queues.LaneConfig{}), v.Request)
	b.Want(v.Request, requests.Done, "")
	b.CheckInvariants()
}

// A direct decision locks no due hold of a variant whose stock another
// transaction has locked. Otherwise each of two decisions could wait for a hold
// that the other one has locked.
func TestDirectDecisionLeavesHoldsOfLockedStock(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Decider = b.NewDecider(queues.DrainConfig{})
	config := admission.IntakeConfig{Decider: b.Decider, Load: queues.NewLoad(b.DB).Read}
	for _, variant := range []string{"shoe", "sock"} {
		b.Stock(variant, 10)
	}
	in, err := admission.NewIntake(b.DB, b.Inserter, config)
	pgtest.Must(t, err)
	b.Settle(b.Intake(config))
	for _, variant := range []string{"shoe", "sock"} {
		r := b.SubmitAs(add("a", variant, ""))
		b.TickUntil(b.Lane(queues.LaneConfig{}), r)
	}
	b.Lapse()
	pgtest.Must(t, in.Refresh(t.Context())) // the intake knows which variants are hot

	stock := b.LockStock("sock")
	record := b.Lock(`LOCK TABLE audit_log IN SHARE MODE`) // the decision is not written until it ends
	var callers sync.WaitGroup
	received := make([]requests.Request, 2)
	for i, variant := range []string{"shoe", "sock"} {
		s := waiting("b", variant, "key of "+variant) // which bounds the wait for the key, and no other
		s.TenantID = b.Tenant
		callers.Go(func() {
			var err error
			received[i], err = in.Submit(t.Context(), s)
			if err != nil {
				t.Error(err)
			}
		})
	}
	pgtest.Until(t, "both callers wait", func() bool { return in.Waiting() == 2 })
	ctx, stop := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = in.Run(ctx) })
	defer serving.Wait()
	defer stop()
	b.Blocked()
	rows, err := b.DB.Query(t.Context(), `SELECT resource_key FROM reservations WHERE status = 'held' FOR NO KEY UPDATE SKIP LOCKED`)
	pgtest.Must(t, err)
	free, err := pgx.CollectRows(rows, pgx.RowTo[string])
	pgtest.Must(t, err)
	if diff := cmp.Diff([]string{"sock"}, free); diff != "" {
		t.Errorf("the due holds that are not locked, -want +got:\n%s", diff)
	}
	record.Release()
	stock.Release()
	callers.Wait()
	if received[0].Status != requests.Done || received[1].Status != requests.Queued {
		t.Errorf("received %s and %s, want done and queued", received[0].Status, received[1].Status)
	}
	if n := b.Int(`SELECT count(*) FROM reservations WHERE status = 'expired' AND ended_at >= expires_at`); n != 1 {
		t.Errorf("%d holds are expired, want 1", n)
	}
	b.CheckInvariants()
}

// panicky is a transaction that panics when a batch is sent.
type panicky struct{ pgx.Tx }

func (panicky) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { panic("a bug") }

// A decision that fails or panics leaves its group queued, and does not affect
// other groups. The drains isolate the request that fails.
func TestFailedDirectDecision(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*testkit.Fixture) (end func()){
		"error": func(b *testkit.Fixture) func() {
			b.Poison()
			return func() {}
		},
		"error before": func(b *testkit.Fixture) func() {
			b.Decider.Before = func(context.Context, pgx.Tx) (pgx.Tx, error) { return nil, fmt.Errorf("a fault") }
			return b.Poison
		},
		"panic": func(b *testkit.Fixture) func() {
			b.Decider.Before = func(_ context.Context, tx pgx.Tx) (pgx.Tx, error) { return panicky{tx}, nil }
			return b.Poison
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, config := newDeciding(t)
			b.Stock("shoe", 10)
			// the holds of the cart are read in a batch
			b.Exec(`UPDATE inventory_stocks SET max_per_cart = 5 WHERE variant_id = 'shoe'`)
			end := fail(b)
			answers := gather(t, b, config, []requestrows.Submission{waiting("a", "shoe", "x"), waiting("bad", "shoe", "y"), waiting("c", "shoe", "z")}).run()
			for _, a := range answers {
				pgtest.Must(t, a.err)
				if a.view.Status != requests.Queued {
					t.Errorf("cart %s: %s, want queued", a.request.CartID, a.view.Status)
				}
			}
			if tried := b.Decider.Tried(); tried != 1 {
				t.Errorf("%d decisions were tried, want 1", tried)
			}
			b.Decider.Before = nil
			end()
			lane, err := normal.NewLane(b.DB, discard, queues.LaneConfig{DrainConfig: queues.DrainConfig{
				Retry: queues.RetryConfig{AttemptsMax: 2, Backoff: time.Millisecond, BackoffMax: time.Millisecond},
			}})
			pgtest.Must(t, err)
			b.TickUntil(lane, answers[1].request)
			b.Want(answers[0].request, requests.Done, "")
			b.Want(answers[1].request, requests.Failed, requests.InternalError)
			b.Want(answers[2].request, requests.Done, "")
			next := b.SubmitDirect(b.Intake(config), waiting("d", "shoe", ""))
			if next.Status != requests.Done || b.Decider.Decided() != 1 {
				t.Errorf("the next request is %s, %d were decided as they were admitted", next.Status, b.Decider.Decided())
			}
			b.CheckInvariants()
		})
	}
}

// A variant stays hot for an intake while no caller comes. So the first caller
// after the pause waits in the queue of the hot lane, and its request is
// decided directly.
func TestRoutesOutlastAPause(t *testing.T) {
	t.Parallel()
	b := testkit.New(t, lanes.Hot)
	b.Stock("shoe", 10)
	in, err := admission.NewIntake(b.DB, b.Inserter, admission.IntakeConfig{Load: queues.NewLoad(b.DB).Read})
	pgtest.Must(t, err)
	pgtest.Must(t, in.Refresh(t.Context()))
	s := waiting("a", "shoe", "")
	s.TenantID = b.Tenant
	for range 2 {
		if lane := in.LaneOf(t.Context(), s); lane != lanes.Hot {
			t.Errorf("it waits in the %s lane's queue", lane)
		}
		in.Idle()
	}
}
