package admission_test

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

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// A group is one transaction, with one wake for each slot that received work.
func TestGroup(t *testing.T) {
	t.Parallel()
	b := newHot(t)
	b.Stock("shoe", 100)
	b.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock) VALUES ($1, 'sock', 100)`, b.Tenant)
	b.Exec(`DELETE FROM river.river_job`)
	var submissions []requestrows.Submission
	for i := range 20 {
		submissions = append(submissions, add(fmt.Sprint("cart-", i), []string{"shoe", "sock"}[i%2], ""))
	}
	for i, a := range gather(t, b, admission.IntakeConfig{Committers: 1}, submissions).run() {
		want := requests.Request{
			TenantID: b.Tenant, RequestID: a.request.RequestID, Sequence: a.request.Sequence, Kind: requests.Add,
			CartID: submissions[i].CartID, VariantID: submissions[i].VariantID, Quantity: 1,
			Lane: lanes.Hot, Slot: a.request.Slot, Status: requests.Queued, CorrelationID: a.request.RequestID.String(),
			CreatedAt: a.request.CreatedAt, UpdatedAt: a.request.UpdatedAt,
		}
		if want.VariantID == "sock" {
			want.Lane, want.Slot = lanes.Normal, 0
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

// Requests whose callers came one after the other are decided in that order.
func TestAdmittedInOrder(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	var submissions []requestrows.Submission
	for i := range 30 {
		submissions = append(submissions, add(fmt.Sprint("cart-", i), "shoe", ""))
	}
	answers := gather(t, b, admission.IntakeConfig{Committers: 1, GroupMax: 7}, submissions).run()
	for i := 1; i < len(answers); i++ {
		if answers[i].request.Sequence <= answers[i-1].request.Sequence {
			t.Fatalf("caller %d received number %d after %d", i, answers[i].request.Sequence, answers[i-1].request.Sequence)
		}
	}
	if n := b.Int(`SELECT count(DISTINCT xmin::text) FROM reservation_requests`); n != 5 {
		t.Errorf("%d transactions, want 5 groups of 7 at most", n)
	}
}

// If one row of a group causes an error, it is the only one that fails.
func TestGroupSplit(t *testing.T) {
	t.Parallel()
	for _, bad := range [][]int{{0}, {6}, {12}, {3, 4}, {0, 5, 12}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			t.Parallel()
			b := newNormal(t)
			b.Exec(`ALTER TABLE reservation_requests ADD CONSTRAINT poison CHECK (cart_id <> 'bad')`)
			var submissions []requestrows.Submission
			for i := range 13 {
				cart := fmt.Sprint("cart-", i)
				if slices.Contains(bad, i) {
					cart = "bad"
				}
				submissions = append(submissions, add(cart, "shoe", fmt.Sprint("key-", i)))
			}
			for i, a := range gather(t, b, admission.IntakeConfig{Committers: 1}, submissions).run() {
				switch {
				case !slices.Contains(bad, i):
					if a.err != nil || a.request.CartID != submissions[i].CartID {
						t.Errorf("caller %d: %+v, %v", i, a.request, a.err)
					}
				case !pg.IsData(a.err) || pg.Constraint(a.err) != "poison":
					t.Errorf("the bad caller %d: %v, want the error of its row", i, a.err)
				}
			}
			if n := b.Int(`SELECT count(*) FROM reservation_requests`); int(n) != 13-len(bad) {
				t.Errorf("%d rows, want %d", n, 13-len(bad))
			}
		})
	}
}

// A full queue refuses the next caller, and nothing of its call is stored.
func TestOverload(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	c := gather(t, b, admission.IntakeConfig{GroupMax: 2, QueueMax: 3}, []requestrows.Submission{add("a", "shoe", ""), add("b", "shoe", ""), add("c", "shoe", "")})
	late := add("d", "shoe", "")
	late.TenantID = b.Tenant
	if _, err := c.in.Submit(t.Context(), late); !errors.Is(err, admission.ErrOverloaded) {
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
	if _, err := c.in.Submit(t.Context(), late); !errors.Is(err, admission.ErrOverloaded) {
		t.Errorf("after the end: %v, want ErrOverloaded", err)
	}
}

// Before it returns, Run commits the callers that wait in the queues.
func TestStopServesTheQueue(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	var submissions []requestrows.Submission
	for i := range 20 {
		submissions = append(submissions, add(fmt.Sprint("cart-", i), "shoe", ""))
	}
	c := gather(t, b, admission.IntakeConfig{GroupMax: 3}, submissions)
	ended, stop := context.WithCancel(t.Context())
	stop()
	pgtest.Must(t, c.in.Run(ended))
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

// A caller that leaves while it waits in the queue is not admitted. A caller
// that leaves while its group is being committed gets no answer, but a later
// call with the same key does.
func TestCallerGoesAway(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	c := gather(t, b, admission.IntakeConfig{}, []requestrows.Submission{add("stays", "shoe", "")})
	gone, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := c.in.Submit(gone, requestrows.Submission{TenantID: b.Tenant, CartID: "leaves", VariantID: "shoe", Quantity: 1})
		left <- err
	}()
	pgtest.Until(t, "it is in the queue", func() bool { return c.in.Waiting() == 2 })
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
	c.run()
	if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE cart_id = 'leaves'`); n != 0 {
		t.Error("a caller that left the queue was admitted")
	}

	lock := b.Lock(`LOCK TABLE reservation_requests IN SHARE MODE`)
	in := b.Intake(admission.IntakeConfig{})
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

// A transaction that takes too long is cancelled. It leaves no row, and the
// next one succeeds.
func TestCommitTimeout(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	lock := b.Lock(`LOCK TABLE reservation_requests IN SHARE MODE`)
	in := b.Intake(admission.IntakeConfig{CommitTimeout: 50 * time.Millisecond})
	s := add("a", "shoe", "key")
	s.TenantID = b.Tenant
	if _, err := in.Submit(t.Context(), s); !pg.IsOutage(err) {
		t.Errorf("%v, want an outage", err)
	}
	lock.Release()
	pgtest.Until(t, "the next one is admitted", func() bool { _, err := in.Submit(t.Context(), s); return err == nil })
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// A request for more units of a digital variant is done when it is admitted.
// There is no hold and no wake, and the stock does not change.
func TestUntracked(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Exec(`INSERT INTO inventory_stocks (tenant_id, variant_id, stock, tracked) VALUES ($1, 'song', 0, false)`, b.Tenant)
	version := b.Int(`SELECT xmin::text::bigint FROM inventory_stocks`)
	for i, a := range gather(t, b, admission.IntakeConfig{}, []requestrows.Submission{add("a", "song", ""), add("b", "song", "")}).run() {
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

// A request that is admitted in the caller's transaction exists if and only if
// that commits.
func TestSubmitTx(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	tx := b.Begin()
	s := requestrows.Submission{
		TenantID: b.Tenant, RequestID: requestrows.NewID(), Kind: requests.Set, CartID: "a", VariantID: "shoe", Quantity: 3,
		CorrelationID: "c-1", ActorID: "hf_shop00", RetryOf: uuid.New(),
	}
	r, err := admission.SubmitTx(t.Context(), tx, b.Inserter, s)
	pgtest.Must(t, err)
	if r.RequestID != s.RequestID || r.Kind != requests.Set || r.CorrelationID != "c-1" || r.ActorID != "hf_shop00" || r.RetryOf == nil || *r.RetryOf != s.RetryOf {
		t.Errorf("%+v, want it as submitted", r)
	}
	if _, err := requestrows.Get(t.Context(), b.DB, b.Tenant, s.RequestID); !errors.Is(err, requestrows.ErrNotFound) {
		t.Errorf("before the commit it is visible to other sessions: %v", err)
	}
	pgtest.Must(t, tx.Rollback(t.Context()))
	if n := b.Int(`SELECT count(*) FROM reservation_requests`) + b.Int(`SELECT count(*) FROM river.river_job`); n != 0 {
		t.Errorf("%d rows and wakes after the rollback", n)
	}
}

// If wakes can't be inserted, an admission in the caller's transaction fails.
// Requests that the intake admits wait for the tick.
func TestWakesCannotBeInserted(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Exec(`ALTER TABLE river.river_job RENAME TO elsewhere`)
	s := requestrows.Submission{TenantID: b.Tenant, CartID: "a", VariantID: "shoe", Quantity: 1}
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		_, err := admission.SubmitTx(t.Context(), tx, b.Inserter, s)
		return err
	})
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); pg.Code(err) != "42P01" || n != 0 {
		t.Errorf("%v, and %d rows, want the error of the wake and no row", err, n)
	}
	r, err := b.Intake(admission.IntakeConfig{}).Submit(t.Context(), s)
	pgtest.Must(t, err)
	b.Tick(b.Lane(queues.LaneConfig{}))
	b.Want(r, requests.Failed, requests.UnknownVariant)
}

// While wakes are being inserted, further wakes gather and are inserted in one
// transaction. The intake inserts them before it ends.
func TestWakesAreMerged(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	b.Pin("shoe")
	b.Exec(`DELETE FROM river.river_job`)
	in, err := admission.NewIntake(b.DB, b.Inserter, admission.IntakeConfig{})
	pgtest.Must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = in.Run(ctx) })
	submit := func(variants ...string) {
		for _, v := range variants {
			_, err := in.Submit(t.Context(), requestrows.Submission{TenantID: b.Tenant, CartID: "a", VariantID: v, Quantity: 1})
			pgtest.Must(t, err)
		}
	}
	jobs := b.Lock(`LOCK TABLE river.river_job IN EXCLUSIVE MODE`)
	submit("sock")
	b.Blocked()
	submit("sock", "shoe", "sock", "shoe")
	stop()
	jobs.Release()
	running.Wait()
	rows, err := b.DB.Query(t.Context(), `
		SELECT string_agg(args ->> 'lane', ' ' ORDER BY id)
		FROM river.river_job
		GROUP BY xmin::text
		ORDER BY min(id)`)
	pgtest.Must(t, err)
	inserted, err := pgx.CollectRows(rows, pgx.RowTo[string])
	pgtest.Must(t, err)
	if diff := cmp.Diff([]string{"normal", "normal hot"}, inserted); diff != "" {
		t.Errorf("wakes by transaction (-want +got):\n%s", diff)
	}
}

func TestIntakeConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]admission.IntakeConfig{
		"group below one":             {GroupMax: -1},
		"queue below the group":       {GroupMax: 10, QueueMax: 9},
		"queue below the usual":       {QueueMax: 100},
		"no committer":                {Committers: -1},
		"no commit timeout":           {CommitTimeout: -time.Second},
		"a timeout that is too short": {CommitTimeout: time.Microsecond},
	} {
		if _, err := admission.NewIntake(nil, nil, c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := admission.NewIntake(nil, nil, admission.IntakeConfig{}); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

// An invalid submission is refused before it enters the queue, and leaves no
// row.
func TestInvalidIsNotAdmitted(t *testing.T) {
	t.Parallel()
	b := newNormal(t)
	blamesVariant := func(err error) bool {
		invalid, ok := errors.AsType[*inventory.InvalidError](err)
		return ok && invalid.Field == "variant_id"
	}
	in := b.Intake(admission.IntakeConfig{})
	bad := requestrows.Submission{TenantID: b.Tenant, CartID: "a", VariantID: "a\x00", Quantity: 1}
	if _, err := in.Submit(t.Context(), bad); !blamesVariant(err) {
		t.Errorf("%v, want variant_id reported as invalid", err)
	}
	err := pgx.BeginFunc(t.Context(), b.DB, func(tx pgx.Tx) error {
		_, err := admission.SubmitTx(t.Context(), tx, b.Inserter, bad)
		return err
	})
	if !blamesVariant(err) {
		t.Errorf("%v, want variant_id reported as invalid", err)
	}
	if n := b.Int(`SELECT count(*) FROM reservation_requests`); n != 0 {
		t.Errorf("%d rows", n)
	}
}
