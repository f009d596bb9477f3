package carts_test

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
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/verify"
)

const lifetimeMax = 2 * time.Hour

var shopper = audit.Origin{Actor: audit.User("hf_shop00"), CorrelationID: "c-7"}

func newNormal(t testing.TB) *testkit.Fixture {
	t.Helper()
	return testkit.New(t, lanes.Normal)
}

func newHot(t testing.TB) *testkit.Fixture {
	t.Helper()
	return testkit.New(t, lanes.Hot)
}

// shop is a database with a tenant and its carts. It has a pool for groups that
// counts their transactions.
type shop struct {
	*testkit.Fixture
	t    *testing.T
	lane *queues.Lane
	pool *pgxpool.Pool
	*counts
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{Fixture: newNormal(t), t: t, counts: &counts{}}
	s.lane = s.Lane(queues.LaneConfig{})
	config := s.DB.Config()
	config.ConnConfig.Tracer = s.counts
	s.pool = s.open(config)
	return s
}

// open opens a pool, which is closed when the test ends.
func (s *shop) open(config *pgxpool.Config) *pgxpool.Pool {
	s.t.Helper()
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	s.must(err)
	s.t.Cleanup(pool.Close)
	return pool
}

// apart returns the same database for another tenant.
func (s *shop) apart() *shop {
	other, fixture := *s, *s.Fixture
	fixture.Tenant = uuid.New()
	other.Fixture = &fixture
	return &other
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// counts are the numbers of transactions of a pool that were committed and
// rolled back, of these with a short lock_timeout, and of commits before the
// first rollback.
type counts struct {
	commits, rollbacks, short, first atomic.Int64
	timeouts                         sync.Map // the lock_timeout of each connection
}

func (c *counts) TraceQueryStart(ctx context.Context, conn *pgx.Conn, query pgx.TraceQueryStartData) context.Context {
	switch strings.ToLower(query.SQL) {
	case "commit":
		c.commits.Add(1)
	case "rollback":
		if c.rollbacks.Add(1) == 1 {
			c.first.Store(c.commits.Load())
		}
		if timeout, _ := c.timeouts.Load(conn); timeout == "100ms" {
			c.short.Add(1)
		}
	}
	return ctx
}

func (*counts) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *counts) TraceBatchQuery(_ context.Context, conn *pgx.Conn, query pgx.TraceBatchQueryData) {
	if strings.Contains(query.SQL, "set_config('lock_timeout', $1") {
		c.timeouts.Store(conn, query.Args[0])
	}
}

func (*counts) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (*counts) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// batches calls ahead before each batch that a pool of one connection sends,
// with its number.
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

// item is a hold to be made for a cart.
type item struct {
	cart, variant string
	quantity      int
}

const queueSQL = `
INSERT INTO reservation_requests (tenant_id, request_id, lane, cart_id, variant_id, quantity)
SELECT $1, item.request_id, 'normal', item.cart_id, item.variant_id, item.quantity
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::integer[]) AS item (request_id, cart_id, variant_id, quantity)`

// hold makes holds of the items and returns their ids.
func (s *shop) hold(items ...item) []uuid.UUID {
	s.t.Helper()
	ids, owners, variants, quantities := make([]uuid.UUID, len(items)), make([]string, len(items)), make([]string, len(items)), make([]int, len(items))
	for i, l := range items {
		ids[i], owners[i], variants[i], quantities[i] = requestrows.NewID(), l.cart, l.variant, l.quantity
	}
	s.Exec(queueSQL, s.Tenant, ids, owners, variants, quantities)
	s.Tick(s.lane)
	if n := s.Int(`SELECT count(*) FROM reservations WHERE tenant_id = $1 AND reservation_id = ANY ($2) AND status = 'held'`, s.Tenant, ids); n != int64(len(ids)) {
		s.t.Fatalf("%d of %d items are held", n, len(ids))
	}
	return ids
}

// lapse makes a hold due: afterwards it was made 30 seconds earlier, within the
// margin of verify, and has been due for a second.
func (s *shop) lapse(id uuid.UUID) {
	s.t.Helper()
	s.Exec(`
		WITH lapsed AS (
		    UPDATE reservations
		    SET first_held_at = first_held_at - interval '30 seconds', held_at = held_at - interval '30 seconds',
		        expires_at = date_trunc('second', clock_timestamp() - interval '1 second')
		    WHERE tenant_id = $1 AND reservation_id = $2
		    RETURNING expires_at
		)
		UPDATE audit_log
		SET expires_at = lapsed.expires_at
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

// becomes waits until the hold has the status, because a commit whose answer is
// lost may still be running.
func (s *shop) becomes(status reservations.Status, id uuid.UUID) {
	s.t.Helper()
	pgtest.Until(s.t, "the hold is "+string(status), func() bool { return s.count(status, []uuid.UUID{id}) == 1 })
}

// count returns how many of the holds have the status.
func (s *shop) count(status reservations.Status, ids []uuid.UUID) int {
	s.t.Helper()
	const countSQL = `SELECT count(*) FROM reservations WHERE tenant_id = $1 AND reservation_id = ANY ($2) AND status = $3`
	return int(s.Int(countSQL, s.Tenant, ids, status))
}

// sound fails the test unless the rows keep all invariants.
func (s *shop) sound() {
	s.t.Helper()
	mustBeSound(s.t, s.Fixture, verify.Config{})
}

func (s *shop) cart(action inventory.Action, cart, variant string) carts.Call {
	return carts.Call{Call: inventory.Call{
		Action: action, TenantID: s.Tenant, CartID: cart, VariantID: variant, Reason: reservations.CartRemoved,
		By: time.Minute, LifetimeMax: lifetimeMax, Origin: shopper,
	}}
}

func (s *shop) checkout(cart string) carts.Call { return s.cart(inventory.CheckoutCart, cart, "") }

func (s *shop) remove(cart, variant string) carts.Call {
	return s.cart(inventory.ReleaseCart, cart, variant)
}

func (s *shop) extendCart(cart string) carts.Call { return s.cart(inventory.ExtendCart, cart, "") }

func (s *shop) one(action inventory.Action, id uuid.UUID) carts.Call {
	c := s.cart(action, "", "")
	c.ReservationID = id
	return c
}

func (s *shop) commit(id uuid.UUID) carts.Call  { return s.one(inventory.CommitHold, id) }
func (s *shop) release(id uuid.UUID) carts.Call { return s.one(inventory.ReleaseHold, id) }
func (s *shop) extend(id uuid.UUID) carts.Call  { return s.one(inventory.ExtendHold, id) }

// keyed returns the call with an idempotency key, with an answer that names the
// changed holds.
func keyed(key string, c carts.Call) carts.Call {
	c.Key = key
	c.Fingerprint = sha256.Sum256([]byte(fmt.Sprint(c.Action, c.CartID, c.VariantID, c.ReservationID)))
	c.Answer = func(r inventory.Result) (tenants.Answer, error) {
		return tenants.Answer{StatusCode: http.StatusOK, Body: []byte(bodyOf(r.Reservations))}, nil
	}
	return c
}

// single makes a call in a separate transaction, as a caller does after
// ErrNotGrouped.
func (s *shop) single(c carts.Call) (r carts.Result, err error) {
	ctx := s.t.Context()
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
		if c.Key != "" {
			r.Replayed, err = tenants.ClaimKeyTx(ctx, tx, c.TenantID, c.Key, c.Fingerprint)
			if err != nil || r.Replayed != nil {
				return err
			}
			if err := requestrows.ReserveKeyTx(ctx, tx, c.TenantID, c.Key); err != nil {
				return err
			}
		}
		a, err := carts.ApplyTx(ctx, tx, c.Call)
		if err != nil {
			return err
		}
		if a.Conflict != nil {
			return a.Conflict
		}
		r.Reservations = a.Reservations
		if c.Key == "" {
			return nil
		}
		answer, err := c.Answer(r.Result)
		if err != nil {
			return err
		}
		return tenants.StoreAnswerTx(ctx, tx, c.TenantID, c.Key, answer)
	})
	return r, err
}

// answer is what Do returned, once done is closed.
type answer struct {
	carts.Result
	err  error
	done chan struct{}
}

// crowd is a number of callers whose calls are queued in a Groups before it
// runs.
type crowd struct {
	t       *testing.T
	groups  *carts.Groups
	answers []*answer
	waiting sync.WaitGroup
}

// gather makes a crowd, whose groups use the pool db.
func gather(t *testing.T, db *pgxpool.Pool, config carts.Config) *crowd {
	t.Helper()
	groups, err := carts.New(db, config)
	if err != nil {
		t.Fatal(err)
	}
	return &crowd{t: t, groups: groups}
}

// call makes a call and does not wait for its answer.
func (c *crowd) call(ctx context.Context, call carts.Call) *answer {
	a := &answer{done: make(chan struct{})}
	c.answers = append(c.answers, a)
	c.waiting.Go(func() {
		defer close(a.done)
		a.Result, a.err = c.groups.Do(ctx, call)
	})
	return a
}

// join queues calls, in the given order.
func (c *crowd) join(ctx context.Context, calls ...carts.Call) {
	c.t.Helper()
	for _, call := range calls {
		before := c.groups.Waiting()
		c.call(ctx, call)
		pgtest.Until(c.t, "the call is queued", func() bool { return c.groups.Waiting() > before })
	}
}

// rush queues calls, in any order.
func (c *crowd) rush(ctx context.Context, calls ...carts.Call) {
	c.t.Helper()
	before := c.groups.Waiting()
	for _, call := range calls {
		c.call(ctx, call)
	}
	pgtest.Until(c.t, "the calls are queued", func() bool { return c.groups.Waiting() == before+len(calls) })
}

// run runs the groups until all callers are answered, and returns the answers.
func (c *crowd) run() []*answer {
	c.t.Helper()
	stop := startGroups(c.groups)
	c.waiting.Wait()
	stop()
	return c.answers
}

// together makes the calls in one group, in the order given.
func (s *shop) together(calls ...carts.Call) []*answer {
	s.t.Helper()
	c := gather(s.t, s.pool, carts.Config{})
	c.join(s.t.Context(), calls...)
	return c.run()
}
