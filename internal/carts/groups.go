package carts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/groupcommit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
)

// ErrNotGrouped means that the call can't be made in a group. Nothing was done,
// or it was done under the call's idempotency key. Make the call in a separate
// transaction.
var ErrNotGrouped = errors.New("carts: make the call in a transaction of its own")

// Call is one call of a verb.
type Call struct {
	inventory.Call
	// Key is the call's idempotency key, "" for none. Fingerprint identifies
	// the call, so that the key can't be used for another one.
	Key         string
	Fingerprint [32]byte
	// Answer makes the answer that is stored under the key. It is called for a
	// call without an error.
	Answer func(inventory.Result) (tenants.Answer, error)
}

func (c *Call) keyed() tenants.KeyedCall {
	return tenants.KeyedCall{TenantID: c.TenantID, Key: c.Key, Fingerprint: c.Fingerprint}
}

func (c *Call) keyOf() requestrows.Key { return requestrows.Key{TenantID: c.TenantID, Key: c.Key} }

// Result is the result of a call without an error.
type Result struct {
	inventory.Result
	// Replayed is the answer that was stored when the call was made before;
	// otherwise nil.
	Replayed *tenants.Answer
}

// Config bounds the groups. The zero value of a field is its default.
type Config struct {
	// GroupMax is how many calls one transaction has at most; default 200.
	GroupMax int
	// QueueMax is how many calls of one tenant wait for a group at most while
	// no other tenant's calls do; default 8,192.
	QueueMax int
	// AttemptTimeout bounds the transaction of a group; default 4 s, at least 1
	// ms.
	AttemptTimeout time.Duration
	// Log receives the errors of failed groups; nil for none.
	Log *slog.Logger
	// StopTimeout is how long Run commits queued calls after its context has
	// ended; default 8 s.
	StopTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	c.GroupMax = cmp.Or(c.GroupMax, 200)
	c.QueueMax = cmp.Or(c.QueueMax, 8192)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, 4*time.Second)
	c.StopTimeout = cmp.Or(c.StopTimeout, 8*time.Second)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.GroupMax < 1 || c.QueueMax < c.GroupMax || c.AttemptTimeout < time.Millisecond || c.StopTimeout < time.Millisecond {
		return c, fmt.Errorf("carts: want 1 ≤ group_max (%d) ≤ queue_max (%d), attempt_timeout (%s) and stop_timeout (%s) ≥ 1ms",
			c.GroupMax, c.QueueMax, c.AttemptTimeout, c.StopTimeout)
	}
	return c, nil
}

// Groups commits calls in groups, one group after the other. It is safe for
// concurrent use. It uses up to three connections: one for a group, one for the
// next group while the first one stalls, and one for the contended queue.
type Groups struct {
	db     *pgxpool.Pool
	config Config
	engine *groupcommit.Engine[*member]
	queue  *groupcommit.Queue[*member]
	// contended is the queue of the calls for stocks that were found locked, so
	// that the other calls do not wait for them.
	contended *groupcommit.Queue[*member]
	// locked are the stocks that other transactions were found to keep locked.
	// For a second, the calls for them go to the contended queue.
	locked *groupcommit.LockedSet[inventory.Ref]
	now    func() time.Time
}

// lockedStocksMax is how many stocks are remembered as locked at one time. The
// calls for further ones wait in their groups.
const lockedStocksMax = 10_000

// New makes a Groups. It commits nothing until Run is called.
func New(db *pgxpool.Pool, config Config) (*Groups, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Groups{
		db: db, config: config, engine: groupcommit.New[*member](config.GroupMax, config.StopTimeout),
		locked: groupcommit.NewLockedSet[inventory.Ref](lockedStocksMax), now: time.Now,
	}
	g.queue = g.engine.Queue(groupcommit.QueueConfig[*member]{
		Limit: config.QueueMax, Committers: 1, Commit: g.commitWith(shortWait),
	})
	g.contended = g.engine.Queue(groupcommit.QueueConfig[*member]{
		Limit: config.QueueMax, Committers: 1, Commit: g.commitWith(longWait), Serial: true, Last: true,
	})
	return g, nil
}

// member is one call in a queue.
type member struct {
	groupcommit.Call[Result]
	call Call
}

// retryAfter is how long the caller of a refused call waits before it tries
// again.
const retryAfter = time.Second

// Do makes a call in a group with others, and returns after the commit.
//
// Errors: those of the verb; *inventory.InvalidError, and *tenants.InvalidError
// for the key; tenants.ErrKeyReused; *admission.RefusedError if too many calls
// wait, Run ends, or ctx's deadline passes while the call is queued: nothing
// was done; admission.ErrOutcomeUnknown if the outcome of a commit is unknown,
// or if ctx ends during it; ErrNotGrouped.
func (g *Groups) Do(ctx context.Context, c Call) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	if keyed := c.keyed(); c.Key != "" {
		if err := keyed.Validate(); err != nil {
			return Result{}, err
		}
	}
	m := &member{call: c}
	m.Begin(ctx)
	switch refusal := g.queue.Join(c.TenantID, m); refusal {
	case groupcommit.Joined:
	case groupcommit.Closed:
		return Result{}, &admission.RefusedError{Why: admission.WhyClosing, RetryAfter: retryAfter}
	default:
		return Result{}, &admission.RefusedError{TenantOnly: refusal == groupcommit.TenantFull, Why: admission.WhyQueue, RetryAfter: retryAfter}
	}
	r, err := m.Wait()
	switch {
	case errors.Is(err, groupcommit.ErrSent):
		err = fmt.Errorf("%w: %w", admission.ErrOutcomeUnknown, ctx.Err())
	case errors.Is(err, groupcommit.ErrLeft):
		err = ctx.Err()
		if errors.Is(err, context.DeadlineExceeded) {
			err = &admission.RefusedError{Why: admission.WhyTimeout, RetryAfter: retryAfter}
		}
	}
	return r, err
}

// Run commits groups until ctx ends, then closes the queue, commits the calls
// in it and returns nil. It abandons the calls that the database has not
// committed within StopTimeout after the end of ctx.
func (g *Groups) Run(ctx context.Context) error {
	g.engine.Run(ctx)
	return nil
}
