package requests_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// A group is one transaction, with one wake for each slot that got work.
func TestGroup(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Stock("shoe", 100)
	b.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, 'sock', 100)`, b.Tenant)
	b.Exec(`DELETE FROM river.river_job`)
	var submissions []requests.Submission
	for i := range 20 {
		submissions = append(submissions, add(fmt.Sprint("cart-", i), []string{"shoe", "sock"}[i%2], ""))
	}
	for i, a := range gather(t, b, requests.IntakeConfig{Committers: 1}, submissions).run() {
		want := requests.Request{
			TenantID: b.Tenant, RequestID: a.request.RequestID, Sequence: a.request.Sequence, Kind: requests.Add,
			CartID: submissions[i].CartID, VariantID: submissions[i].VariantID, Quantity: 1,
			Lane: requests.Hot, Slot: a.request.Slot, Status: requests.Queued, CorrelationID: a.request.RequestID.String(),
			CreatedAt: a.request.CreatedAt, UpdatedAt: a.request.UpdatedAt,
		}
		if want.VariantID == "sock" {
			want.Lane, want.Slot = requests.Normal, 0
		}
		if diff := cmp.Diff(want, a.request); a.err != nil || diff != "" {
			t.Errorf("request %d: %v (-want +got):\n%s", i, a.err, diff)
		}
		if diff := cmp.Diff(a.request, b.Get(a.request).Request); diff != "" {
			t.Errorf("request %d as stored (-answered +got):\n%s", i, diff)
		}
	}
	if n := b.Int(`SELECT count(DISTINCT xmin::text) FROM reservation_requests`); n != 1 {
		t.Errorf("%d transactions, want one", n)
	}
	if n := b.Int(`SELECT count(*) FROM river.river_job`); n != 2 {
		t.Errorf("%d wakes, want one for each slot", n)
	}
}

// Callers who came one after the other are decided in that order.
func TestAdmittedInOrder(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	var submissions []requests.Submission
	for i := range 30 {
		submissions = append(submissions, add(fmt.Sprint("cart-", i), "shoe", ""))
	}
	answers := gather(t, b, requests.IntakeConfig{Committers: 1, GroupMax: 7}, submissions).run()
	for i := 1; i < len(answers); i++ {
		if answers[i].request.Sequence <= answers[i-1].request.Sequence {
			t.Fatalf("caller %d got number %d after %d", i, answers[i].request.Sequence, answers[i-1].request.Sequence)
		}
	}
	if n := b.Int(`SELECT count(DISTINCT xmin::text) FROM reservation_requests`); n != 5 {
		t.Errorf("%d transactions, want 5 groups of 7 at most", n)
	}
}

// One bad row of a group is the only one to fail.
func TestGroupSplit(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]int{{0}, {6}, {12}, {3, 4}, {0, 5, 12}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			t.Parallel()
			b := newNormal(t)
			b.Exec(`ALTER TABLE reservation_requests ADD CONSTRAINT poison CHECK (cart_id <> 'bad')`)
			var submissions []requests.Submission
			for i := range 13 {
				cart := fmt.Sprint("cart-", i)
				if slices.Contains(bad, i) {
					cart = "bad"
				}
				submissions = append(submissions, add(cart, "shoe", fmt.Sprint("key-", i)))
			}
			for i, a := range gather(t, b, requests.IntakeConfig{Committers: 1}, submissions).run() {
				switch {
				case !slices.Contains(bad, i):
					if a.err != nil || a.request.CartID != submissions[i].CartID {
						t.Errorf("caller %d: %+v, %v", i, a.request, a.err)
					}
				case !pgerr.IsData(a.err) || pgerr.Constraint(a.err) != "poison":
					t.Errorf("the bad caller %d: %v, want its own fault", i, a.err)
				}
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests`); int(n) != 13-len(bad) {
				t.Errorf("%d rows, want %d", n, 13-len(bad))
			}
		})
	}
}

// A full line refuses the next caller, and nothing of it is kept.
func TestOverload(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	c := gather(t, b, requests.IntakeConfig{GroupMax: 2, LineMax: 3}, []requests.Submission{add("a", "shoe", ""), add("b", "shoe", ""), add("c", "shoe", "")})
	late := add("d", "shoe", "")
	late.TenantID = b.Tenant
	if _, err := c.in.Submit(t.Context(), late); !errors.Is(err, requests.ErrOverloaded) {
		t.Errorf("%v, want ErrOverloaded", err)
	}
	for i, a := range c.run() {
		if a.err != nil {
			t.Errorf("caller %d: %v", i, a.err)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'd'`); n != 0 {
		t.Error("the refused caller has a row")
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 3 {
		t.Errorf("%d rows, want 3", n)
	}
	if _, err := c.in.Submit(t.Context(), late); !errors.Is(err, requests.ErrOverloaded) {
		t.Errorf("after the end: %v, want ErrOverloaded", err)
	}
}

// The end of Run commits whoever stands in the line.
func TestEndServesTheLine(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	var submissions []requests.Submission
	for i := range 20 {
		submissions = append(submissions, add(fmt.Sprint("cart-", i), "shoe", ""))
	}
	c := gather(t, b, requests.IntakeConfig{GroupMax: 3}, submissions)
	ended, stop := context.WithCancel(t.Context())
	stop()
	must(t, c.in.Run(ended))
	c.waiting.Wait()
	for i, a := range c.answers {
		if a.err != nil {
			t.Errorf("caller %d: %v", i, a.err)
		}
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 20 {
		t.Errorf("%d rows, want 20", n)
	}
}

// A caller who goes away while standing in the line is left out; one whose group is being committed gets no answer, but
// the same key does later.
func TestCallerGoesAway(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	c := gather(t, b, requests.IntakeConfig{}, []requests.Submission{add("stays", "shoe", "")})
	gone, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := c.in.Submit(gone, requests.Submission{TenantID: b.Tenant, CartID: "leaves", VariantID: "shoe", Quantity: 1})
		left <- err
	}()
	eventually(t, "it stands in the line", func() bool { return c.in.InLine() == 2 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	c.run()
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'leaves'`); n != 0 {
		t.Error("who left the line was admitted")
	}

	lock := b.Lock(`LOCK TABLE reservation_requests IN SHARE MODE`)
	in := b.Intake(requests.IntakeConfig{})
	s := add("hurried", "shoe", "key")
	s.TenantID = b.Tenant
	gone, leave = context.WithCancel(t.Context())
	go func() {
		_, err := in.Submit(gone, s)
		left <- err
	}()
	b.Blocked()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	lock.Release()
	again, err := in.Submit(t.Context(), s)
	if err != nil || b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'hurried'`) != 1 {
		t.Errorf("%+v, %v: want the one row", again, err)
	}
}

// A transaction that takes too long ends; nothing is left of it, and the next one works.
func TestCommitTimeout(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	lock := b.Lock(`LOCK TABLE reservation_requests IN SHARE MODE`)
	in := b.Intake(requests.IntakeConfig{CommitTimeout: 50 * time.Millisecond})
	s := add("a", "shoe", "key")
	s.TenantID = b.Tenant
	if _, err := in.Submit(t.Context(), s); !pgerr.IsOutage(err) {
		t.Errorf("%v, want an outage", err)
	}
	lock.Release()
	eventually(t, "the next one is admitted", func() bool { _, err := in.Submit(t.Context(), s); return err == nil })
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// A digital variant's request is done as it is admitted: no hold, no wake, and the stock is not touched.
func TestUntracked(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, tracked) VALUES ($1, 'song', 0, false)`, b.Tenant)
	version := b.Int(`SELECT xmin::text::bigint FROM inventory_stocks`)
	for i, a := range gather(t, b, requests.IntakeConfig{}, []requests.Submission{add("a", "song", ""), {Kind: requests.Set, CartID: "a", VariantID: "song", Quantity: 1000}}).run() {
		if a.err != nil || a.request.Status != requests.Done {
			t.Errorf("caller %d: %+v, %v; want done", i, a.request, a.err)
		}
		if v := b.Get(a.request); v.Reservation != nil || v.Position != nil || v.Status != requests.Done {
			t.Errorf("%+v, want it done without a hold", v)
		}
	}
	if n := b.Int(`SELECT count(*) FROM river.river_job`) + b.Int(`SELECT count(*) FROM reservations`); n != 0 {
		t.Errorf("%d wakes and holds, want none", n)
	}
	if b.Int(`SELECT xmin::text::bigint FROM inventory_stocks`) != version {
		t.Error("the stock's row was written")
	}
	if r := b.Tick(b.Lane(queues.LaneConfig{})); r.Claimed != 0 {
		t.Errorf("the lane claimed %d", r.Claimed)
	}
}

// A request that joins the caller's transaction stands and falls with it.
func TestSubmitTx(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	tx := b.Begin()
	s := requests.Submission{
		TenantID: b.Tenant, RequestID: requests.NewID(), Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 3,
		CorrelationID: "c-1", ActorID: "hf_shop00", RetryOf: uuid.New(),
	}
	r, err := requests.SubmitTx(t.Context(), tx, b.Bell, s)
	must(t, err)
	if r.RequestID != s.RequestID || r.Kind != requests.Set || r.CorrelationID != "c-1" || r.ActorID != "hf_shop00" || r.RetryOf == nil || *r.RetryOf != s.RetryOf {
		t.Errorf("%+v, want it as it was asked", r)
	}
	if _, err := requests.Get(t.Context(), b.DB, b.Tenant, s.RequestID); !errors.Is(err, requests.ErrNotFound) {
		t.Errorf("before the commit others see it: %v", err)
	}
	must(t, tx.Rollback(t.Context()))
	if n := b.Int(`SELECT count(*) FROM reservation_requests`) + b.Int(`SELECT count(*) FROM river.river_job`); n != 0 {
		t.Errorf("%d rows and wakes of what was rolled back", n)
	}
}

// A ringer that fails takes the admission in the caller's transaction with it; the intake's requests are left to the tick.
func TestRingerFails(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	broken := errors.New("the rope is torn")
	torn := ringerFunc(func(context.Context, []requests.Wake) error { return broken })
	s := requests.Submission{TenantID: b.Tenant, CartID: "a", VariantID: "shoe", Quantity: 1}
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		_, err := requests.SubmitTx(t.Context(), tx, torn, s)
		return err
	})
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); !errors.Is(err, broken) || n != 0 {
		t.Errorf("%v, and %d rows, want the ringer's error and no row", err, n)
	}
	through := *b
	through.Ringer = torn
	r, err := through.Intake(requests.IntakeConfig{}).Submit(t.Context(), s)
	must(t, err)
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(r, requests.Failed, requests.UnknownVariant)
}

// While a ring is under way, those that become due wait for it and are made as one; the intake ends with the last.
func TestRingsAreMerged(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	must(t, hot.Pin(t.Context(), b.DB, b.Bell, b.Tenant, "shoe"))
	rings, resume := make(chan []requests.Wake, 10), make(chan struct{})
	in, err := requests.NewIntake(b.DB, ringerFunc(func(_ context.Context, wakes []requests.Wake) error {
		rings <- wakes
		<-resume
		return nil
	}), requests.IntakeConfig{})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = in.Run(ctx) })
	submit := func(variants ...string) {
		for _, v := range variants {
			_, err := in.Submit(t.Context(), requests.Submission{TenantID: b.Tenant, CartID: "a", VariantID: v, Quantity: 1})
			must(t, err)
		}
	}
	submit("sock")
	first := <-rings
	submit("sock", "shoe", "sock", "shoe")
	stop()
	resume <- struct{}{}
	second := <-rings
	resume <- struct{}{}
	running.Wait()
	normal := requests.Wake{Lane: requests.Normal}
	if len(first) != 1 || first[0] != normal {
		t.Errorf("first %v, want the normal lane", first)
	}
	if len(second) != 2 || second[0] != normal || second[1].Lane != requests.Hot {
		t.Errorf("then %v, want both lanes once", second)
	}
	if len(rings) != 0 {
		t.Errorf("and then %v", <-rings)
	}
}

type ringerFunc func(context.Context, []requests.Wake) error

func (f ringerFunc) RingTx(ctx context.Context, _ pgx.Tx, wakes []requests.Wake) error {
	return f(ctx, wakes)
}

func (f ringerFunc) Ring(ctx context.Context, wakes []requests.Wake) error { return f(ctx, wakes) }

func (f ringerFunc) Notify(context.Context, []requests.Wake) error { return nil }

func TestIntakeConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]requests.IntakeConfig{
		"group below one":      {GroupMax: -1},
		"line below the group": {GroupMax: 10, LineMax: 9},
		"line below the usual": {LineMax: 100},
		"nobody commits":       {Committers: -1},
		"no time for a commit": {CommitTimeout: -time.Second},
		"too little for any":   {CommitTimeout: time.Microsecond},
	} {
		if _, err := requests.NewIntake(nil, nil, c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := requests.NewIntake(nil, nil, requests.IntakeConfig{}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
