package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/bench/load"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/verify"
)

// service sells over HTTP: Holdfast or a synchronous service.
type service interface {
	target() load.Target
	// fill makes n carts with one unit each, of the hot variant or of the
	// others, before the clock starts.
	fill(ctx context.Context, n int, hot bool) ([]load.Item, error)
	// checkSold fails unless the rows agree with the answers that callers
	// received. It returns the counts of the rows.
	checkSold(ctx context.Context, want baselines.Sold) (baselines.Sold, error)
}

// countedService is a service with the counts of what its callers were
// answered, over all repetitions of a suite.
type countedService struct {
	service
	sold baselines.Sold
	// hot and spread are carts for callers that only check out.
	hot, spread carts
}

// caller is a session that counts its answers.
type caller interface {
	load.Session
	answered() baselines.Sold
}

// call runs the callers and returns the counts of their answers.
func (c *countedService) call(ctx context.Context, long time.Duration, callers []caller) (*load.Result, baselines.Sold, error) {
	var sold baselines.Sold
	sessions := make([]load.Session, len(callers))
	for i := range callers {
		sessions[i] = callers[i]
	}
	target := c.target()
	target.Wait, target.AfterRefusal = waitSeconds, refusedFor
	r, err := load.Sessions(ctx, target, long, sessions)
	for _, one := range callers {
		found := one.answered()
		sold.Granted += found.Granted
		sold.Committed += found.Committed
		sold.Released += found.Released
	}
	c.sold.Granted += sold.Granted
	c.sold.Committed += sold.Committed
	c.sold.Released += sold.Released
	return r, sold, err
}

// agrees is the check of a contender.
func (c *countedService) agrees(ctx context.Context, _ sample) error {
	_, err := c.checkSold(ctx, c.sold)
	return err
}

// stock fills carts up to n.
func (c *countedService) stock(ctx context.Context, n int, hot bool) error {
	carts := c.carts(hot)
	missing := n - carts.count()
	if missing <= 0 {
		return nil
	}
	filled, err := c.fill(ctx, missing, hot)
	if err != nil {
		return fmt.Errorf("fill %d carts: %w", missing, err)
	}
	carts.put(filled)
	c.sold.Granted += int64(missing)
	return nil
}

func (c *countedService) carts(hot bool) *carts {
	if hot {
		return &c.hot
	}
	return &c.spread
}

// carts is a queue of carts that hold a unit and were not checked out yet.
type carts struct {
	mu   sync.Mutex
	left []load.Item
}

func (c *carts) put(filled []load.Item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, filled...)
}

// take returns false when none is left.
func (c *carts) take() (load.Item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.left) == 0 {
		return load.Item{}, false
	}
	item := c.left[0]
	c.left = c.left[1:]
	return item, true
}

func (c *carts) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.left)
}

// servicePair is Holdfast and the synchronous service with four statements,
// each with a separate database and processes.
type servicePair struct {
	deployment   *deployment
	synchronous  *synchronous
	ours, theirs *countedService
}

// newServicePair starts both. Their holds last for ttl; 0 means their default.
func (b *bench) newServicePair(ctx context.Context, ttl time.Duration) (*servicePair, error) {
	var settings, flags []string
	if ttl != 0 {
		settings, flags = []string{"HOLD_TTL=" + ttl.String()}, []string{"-ttl", ttl.String()}
	}
	f, err := b.newDeployment(ctx, settings...)
	if err != nil {
		return nil, err
	}
	s, err := b.startSynchronous(ctx, formTransaction, otherVariants+1, flags...)
	if err != nil {
		f.close()
		return nil, err
	}
	return &servicePair{deployment: f, synchronous: s, ours: &countedService{service: f}, theirs: &countedService{service: s}}, nil
}

func (c *servicePair) close() {
	c.deployment.close()
	c.synchronous.close()
}

// verified fails unless all that verify checks holds of our database, and
// Postgres has counted no deadlock in either. It stops the programs, because a
// session reports its deadlocks at its end at the latest.
func (b *bench) verified(ctx context.Context, c *servicePair) error {
	if err := b.invariant(ctx, c.deployment.db); err != nil {
		return err
	}
	c.close()
	for _, db := range []string{c.deployment.database(), c.synchronous.database()} {
		if err := b.withoutDeadlocks(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

// invariant fails unless all that verify checks holds of the database.
func (b *bench) invariant(ctx context.Context, db *pgxpool.Pool) error {
	report, err := verify.Run(ctx, db, verify.Config{})
	if err != nil {
		return err
	}
	if !report.OK {
		report.Print(b.stderr)
		return errors.New(report.Summary())
	}
	return nil
}

const (
	sessionsSQL  = `SELECT count(*) FROM pg_stat_activity WHERE datname = $1`
	deadlocksSQL = `SELECT deadlocks FROM pg_stat_database WHERE datname = $1`
)

// withoutDeadlocks fails if Postgres has counted a deadlock in the database. It
// waits until its last session has ended.
func (b *bench) withoutDeadlocks(ctx context.Context, database string) error {
	err := await(ctx, stopWithin, 5*time.Millisecond, func() (missing string, err error) {
		var sessions int64
		if err := b.admin.QueryRow(ctx, sessionsSQL, database).Scan(&sessions); err != nil || sessions == 0 {
			return "", err
		}
		return fmt.Sprintf("%d sessions of database %s have not ended", sessions, database), nil
	})
	if err != nil {
		return err
	}
	var deadlocks int64
	if err := b.admin.QueryRow(ctx, deadlocksSQL, database).Scan(&deadlocks); err != nil {
		return fmt.Errorf("read the deadlocks of database %s: %w", database, err)
	}
	if deadlocks > 0 {
		return fmt.Errorf("there were %d deadlocks in database %s", deadlocks, database)
	}
	return nil
}

func (f *deployment) database() string { return f.db.Config().ConnConfig.Database }

func (s *synchronous) database() string { return s.db.Config().ConnConfig.Database }

const (
	allReservedSQL = `SELECT coalesce(sum(reserved), 0)::bigint FROM inventory_stocks WHERE tenant_id = $1`
	// filledSQL gathers the statistics that autovacuum would have gathered.
	filledSQL = `ANALYZE reservation_requests, reservations, inventory_stocks`
)

// fill admits the requests as the API does, and has the worker decide them.
func (f *deployment) fill(ctx context.Context, n int, hot bool) ([]load.Item, error) {
	stream, next := lanes.Stream{Lane: lanes.Normal}, toNormal
	if hot {
		stream, next = lanes.Stream{Lane: lanes.Hot, Slot: f.slot}, toHot
	}
	var before int64
	if err := f.db.QueryRow(ctx, allReservedSQL, f.tenant).Scan(&before); err != nil {
		return nil, err
	}
	filled := itemsOf(n, next)
	at := 0
	err := insertQueued(ctx, f.db, f.tenant, stream.Lane, stream.Slot, n, func() load.Item {
		at++
		return filled[at-1]
	})
	if err != nil {
		return nil, err
	}
	if err := f.wake(ctx, stream); err != nil {
		return nil, err
	}
	err = await(ctx, backlogMax, 5*time.Millisecond, func() (missing string, err error) {
		var now int64
		if err := f.db.QueryRow(ctx, allReservedSQL, f.tenant).Scan(&now); err != nil || now == before+int64(n) {
			return "", err
		}
		return fmt.Sprintf("%d of %d carts hold something", now-before, n), nil
	})
	if err != nil {
		return nil, err
	}
	_, err = f.db.Exec(ctx, filledSQL)
	return filled, err
}

// itemsOf are n carts with one item each.
func itemsOf(n int, next func() load.Item) []load.Item {
	items := make([]load.Item, n)
	for i := range items {
		items[i] = next()
	}
	return items
}

const soldSQL = `
SELECT count(*) FILTER (WHERE action = 'reservation.held'), count(*) FILTER (WHERE action = 'reservation.committed'),
       count(*) FILTER (WHERE action = 'reservation.released' AND release_reason = 'cart_removed'),
       count(*) FILTER (WHERE action = 'reservation.expired'),
       (SELECT count(*) FROM reservation_requests WHERE status IN ('queued', 'processing')),
       (SELECT count(*) FROM reservation_requests WHERE status = 'failed')
FROM audit_log`

func (f *deployment) checkSold(ctx context.Context, want baselines.Sold) (got baselines.Sold, err error) {
	err = await(ctx, backlogMax, 20*time.Millisecond, func() (missing string, err error) {
		var undone, failed int64
		if err := f.db.QueryRow(ctx, soldSQL).Scan(&got.Granted, &got.Committed, &got.Released, &got.Expired, &undone, &failed); err != nil {
			return "", err
		}
		if undone > 0 {
			return fmt.Sprintf("%d requests are not done", undone), nil
		}
		want.Expired = got.Expired
		if got != want || failed > 0 {
			return "", fmt.Errorf("the rows do not add up: %+v, want %+v; %d requests failed", got, want, failed)
		}
		return "", nil
	})
	return got, err
}

func (s *synchronous) fill(ctx context.Context, n int, hot bool) ([]load.Item, error) {
	next := toNormal
	if hot {
		next = toHot
	}
	filled := itemsOf(n, next)
	wanted := make([]baselines.Request, n)
	for i, item := range filled {
		wanted[i] = baselines.Request{TenantID: s.tenant, HoldID: newID(), CartID: item.CartID, VariantID: item.VariantID, Quantity: 1}
	}
	return filled, baselines.Fill(ctx, s.db, wanted)
}

func (s *synchronous) checkSold(ctx context.Context, want baselines.Sold) (baselines.Sold, error) {
	return baselines.CheckSold(ctx, s.db, want, (otherVariants+1)*plenty)
}
