package verbs_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/internal/verify"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
	"github.com/holdfast/holdfast/verbs"
)

const lifetimeMax = 2 * time.Hour

var shopper = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-7"}

// shop is a database with a tenant whose carts hold things, and a pool for groups whose transactions are counted.
type shop struct {
	*lanetest.Bench
	t    *testing.T
	lane *queues.Lane
	pool *pgxpool.Pool
	*counts
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{Bench: lanetest.New(t, requests.Normal, normal.NewLane), t: t, counts: &counts{}}
	s.lane = s.Lane(queues.LaneConfig{})
	config := s.DB.Config()
	config.ConnConfig.Tracer = s.counts
	s.pool = s.open(config)
	return s
}

// open opens a pool until the test ends.
func (s *shop) open(config *pgxpool.Config) *pgxpool.Pool {
	s.t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	s.must(err)
	s.t.Cleanup(pool.Close)
	return pool
}

// apart is the same database for another tenant.
func (s *shop) apart() *shop {
	other, bench := *s, *s.Bench
	bench.Tenant = uuid.New()
	other.Bench = &bench
	return &other
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// counts are how many transactions of a pool ended.
type counts struct{ commits, rollbacks atomic.Int64 }

func (c *counts) TraceQueryStart(ctx context.Context, _ *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	switch strings.ToLower(query.SQL) {
	case "commit":
		c.commits.Add(1)
	case "rollback":
		c.rollbacks.Add(1)
	}
	return ctx
}

func (*counts) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// batches calls ahead before each batch that a pool of one connection sends, with its number.
type batches struct {
	counts
	sent  int
	ahead func(n int)
}

func (b *batches) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	b.sent++
	b.ahead(b.sent)
	return ctx
}

func (*batches) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*batches) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// line is what a cart is to hold.
type line struct {
	cart, variant string
	quantity      int
}

const queueSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
SELECT $1, line.request_id, 'normal', line.cart_id, line.variant_id, line.quantity
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::integer[]) AS line (request_id, cart_id, variant_id, quantity)`

// hold has the lines held and returns the ids of the holds.
func (s *shop) hold(lines ...line) []uuid.UUID {
	s.t.Helper()
	ids, carts, variants, quantities := make([]uuid.UUID, len(lines)), make([]string, len(lines)), make([]string, len(lines)), make([]int, len(lines))
	for i, l := range lines {
		ids[i], carts[i], variants[i], quantities[i] = requests.NewID(), l.cart, l.variant, l.quantity
	}
	s.Exec(queueSQL, s.Tenant, ids, carts, variants, quantities)
	s.Tick(s.lane)
	if n := s.Int(`SELECT count(*) FROM reservations WHERE tenant_id = $1 AND reservation_id = ANY ($2) AND status = 'held'`, s.Tenant, ids); n != int64(len(ids)) {
		s.t.Fatalf("%d of %d lines are held", n, len(ids))
	}
	return ids
}

// lapse lets a hold's time pass: it was made a day ago and is due since a second.
func (s *shop) lapse(id uuid.UUID) {
	s.t.Helper()
	s.Exec(`
		WITH lapsed AS (
		    UPDATE reservations
		    SET first_held_at = first_held_at - interval '1 day', held_at = held_at - interval '1 day',
		        expires_at = date_trunc('second', clock_timestamp() - interval '1 second')
		    WHERE tenant_id = $1 AND reservation_id = $2
		    RETURNING expires_at
		)
		UPDATE audit_log
		SET after = jsonb_set(after, '{expires_at}', to_jsonb(to_char(lapsed.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
		FROM lapsed
		WHERE tenant_id = $1 AND target_id = $2`, s.Tenant, id)
}

// is fails the test unless the holds have the status.
func (s *shop) is(status reservations.Status, ids ...uuid.UUID) {
	s.t.Helper()
	if n := s.count(status, ids); n != len(ids) {
		s.t.Errorf("%d of %d holds are %s", n, len(ids), status)
	}
}

// becomes waits until the hold has the status: a commit whose answer is swallowed may still be on its way.
func (s *shop) becomes(status reservations.Status, id uuid.UUID) {
	s.t.Helper()
	eventually(s.t, "the hold is "+string(status), func() bool { return s.count(status, []uuid.UUID{id}) == 1 })
}

// count is how many of the holds have the status.
func (s *shop) count(status reservations.Status, ids []uuid.UUID) int {
	s.t.Helper()
	const countSQL = `SELECT count(*) FROM reservations WHERE tenant_id = $1 AND reservation_id = ANY ($2) AND status = $3`
	return int(s.Int(countSQL, s.Tenant, ids, status))
}

// sound fails the test unless all that the rows promise is kept.
func (s *shop) sound() {
	s.t.Helper()
	s.Sound()
	report, err := verify.Config{}.Run(s.t.Context(), s.DB)
	s.must(err)
	for _, check := range report.Checks {
		if check.Broken > 0 {
			s.t.Errorf("%s: %d rows, such as %s", check.Meaning, check.Broken, check.Sample[0])
		}
	}
}

func (s *shop) cart(action inventory.Action, cart, variant string) verbs.Call {
	return verbs.Call{Call: inventory.Call{
		Action: action, TenantID: s.Tenant, CartID: cart, VariantID: variant, Reason: reservations.CartRemoved,
		By: time.Minute, LifetimeMax: lifetimeMax, Origin: shopper,
	}}
}

func (s *shop) checkout(cart string) verbs.Call { return s.cart(inventory.CheckoutCart, cart, "") }

func (s *shop) remove(cart, variant string) verbs.Call {
	return s.cart(inventory.ReleaseCart, cart, variant)
}

func (s *shop) extendCart(cart string) verbs.Call { return s.cart(inventory.ExtendCart, cart, "") }

func (s *shop) one(action inventory.Action, id uuid.UUID) verbs.Call {
	c := s.cart(action, "", "")
	c.ReservationID = id
	return c
}

func (s *shop) commit(id uuid.UUID) verbs.Call  { return s.one(inventory.CommitHold, id) }
func (s *shop) release(id uuid.UUID) verbs.Call { return s.one(inventory.ReleaseHold, id) }
func (s *shop) extend(id uuid.UUID) verbs.Call  { return s.one(inventory.ExtendHold, id) }

// keyed is the call under an idempotency key.
func keyed(key string, c verbs.Call) verbs.Call {
	c.Key = key
	c.Fingerprint = sha256.Sum256([]byte(fmt.Sprint(c.Action, c.CartID, c.VariantID, c.ReservationID)))
	c.Answer = func(r inventory.Result) (tenants.Answer, error) {
		return tenants.Answer{StatusCode: http.StatusOK, Body: []byte(body(r))}, nil
	}
	return c
}

// body is the answer to a call.
func body(r inventory.Result) string {
	var b strings.Builder
	for _, h := range r.Reservations {
		fmt.Fprintln(&b, h.ReservationID, h.Status, h.ExpiresAt.UnixMicro())
	}
	return b.String()
}

// alone makes a call in a transaction of its own, as a caller does that got ErrAlone.
func (s *shop) alone(c verbs.Call) (r verbs.Result, err error) {
	ctx := s.t.Context()
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if c.Key != "" {
			if r.Kept, err = tenants.ClaimKeyTx(ctx, tx, c.TenantID, c.Key, c.Fingerprint); err != nil || r.Kept != nil {
				return err
			}
			if err := requests.FenceKeyTx(ctx, tx, c.TenantID, c.Key); err != nil {
				return err
			}
		}
		if r.Reservations, err = apply(ctx, tx, &c.Call); err != nil || c.Key == "" {
			return err
		}
		a, err := c.Answer(r.Result)
		if err != nil {
			return err
		}
		return tenants.KeepAnswerTx(ctx, tx, c.TenantID, c.Key, a)
	})
	return r, err
}

// apply applies a call by the verb that joins a transaction.
func apply(ctx context.Context, tx pgx.Tx, c *inventory.Call) ([]reservations.Reservation, error) {
	var one reservations.Reservation
	var err error
	switch c.Action {
	case inventory.CheckoutCart:
		return requests.CheckoutTx(ctx, tx, c.TenantID, c.CartID, c.Origin)
	case inventory.ReleaseCart:
		removed, err := requests.RemoveTx(ctx, tx, c.TenantID, c.CartID, c.VariantID, c.Reason, c.Origin)
		return removed.Released, err
	case inventory.ExtendCart:
		return inventory.ExtendCartTx(ctx, tx, c.TenantID, c.CartID, c.By, c.LifetimeMax, c.Origin)
	case inventory.CommitHold:
		one, err = inventory.CommitTx(ctx, tx, c.TenantID, c.ReservationID, c.Origin)
	case inventory.ReleaseHold:
		one, err = inventory.ReleaseTx(ctx, tx, c.TenantID, c.ReservationID, c.Reason, c.Origin)
	default:
		one, err = inventory.ExtendTx(ctx, tx, c.TenantID, c.ReservationID, c.By, c.LifetimeMax, c.Origin)
	}
	return []reservations.Reservation{one}, err
}

// answer is what Do returned, once done is closed.
type answer struct {
	verbs.Result
	err  error
	done chan struct{}
}

// crowd is a number of callers whose calls are in the line of a Groups before it begins to work.
type crowd struct {
	t       *testing.T
	groups  *verbs.Groups
	answers []*answer
	waiting sync.WaitGroup
}

// gather makes a crowd, whose groups use the pool db.
func gather(t *testing.T, db *pgxpool.Pool, config verbs.Config) *crowd {
	t.Helper()
	groups, err := verbs.New(db, config)
	if err != nil {
		t.Fatal(err)
	}
	return &crowd{t: t, groups: groups}
}

// call makes a call and does not wait for its answer.
func (c *crowd) call(ctx context.Context, call verbs.Call) *answer {
	a := &answer{done: make(chan struct{})}
	c.answers = append(c.answers, a)
	c.waiting.Go(func() {
		defer close(a.done)
		a.Result, a.err = c.groups.Do(ctx, call)
	})
	return a
}

// join has calls wait in the line, in the order given.
func (c *crowd) join(ctx context.Context, calls ...verbs.Call) {
	c.t.Helper()
	for _, call := range calls {
		before := c.groups.Waiting()
		c.call(ctx, call)
		eventually(c.t, "the call is in the line", func() bool { return c.groups.Waiting() > before })
	}
}

// rush has calls wait in the line, in any order.
func (c *crowd) rush(ctx context.Context, calls ...verbs.Call) {
	c.t.Helper()
	before := c.groups.Waiting()
	for _, call := range calls {
		c.call(ctx, call)
	}
	eventually(c.t, "the calls are in the line", func() bool { return c.groups.Waiting() == before+len(calls) })
}

// run lets the groups work until all callers are answered, and returns the answers.
func (c *crowd) run() []*answer {
	c.t.Helper()
	stop := start(c.groups)
	c.waiting.Wait()
	stop()
	return c.answers
}

// start runs the groups until stop is called, which returns once Run has.
func start(g *verbs.Groups) (stop func()) {
	ctx, end := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	return func() { end(); running.Wait() }
}

// together makes the calls in one group, in the order given.
func (s *shop) together(calls ...verbs.Call) []*answer {
	s.t.Helper()
	c := gather(s.t, s.pool, verbs.Config{})
	c.join(s.t.Context(), calls...)
	return c.run()
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.NewTimer(30*time.Second)
	defer tick.Stop()
	defer late.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("never: %s", what)
		}
	}
}
