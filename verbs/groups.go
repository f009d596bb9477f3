package verbs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/fair"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// ErrAlone means that the call does not belong into a group. Nothing was done, or it was done under the call's idempotency
// key: make the call in a transaction of its own.
var ErrAlone = errors.New("verbs: make the call alone")

// Call is one call of a verb.
type Call struct {
	inventory.Call
	// Key is the call's idempotency key, "" for none, and Fingerprint what tells the call from others.
	Key         string
	Fingerprint [32]byte
	// Answer makes the answer that is kept under the key, for a call without an error.
	Answer func(inventory.Result) (tenants.Answer, error)
}

func (c *Call) keyed() tenants.KeyedCall {
	return tenants.KeyedCall{TenantID: c.TenantID, Key: c.Key, Fingerprint: c.Fingerprint}
}

// Result is what came of a call that has no error.
type Result struct {
	inventory.Result
	// Kept is the answer that was kept when the call was made before, else nil.
	Kept *tenants.Answer
}

// Config bounds the groups. The zero value of a field is its default.
type Config struct {
	// GroupMax is how many calls one transaction has at most; default 200.
	GroupMax int
	// LineMax is how many calls of one tenant wait for a group at most while no other's do; default 8,192.
	LineMax int
	// AttemptTimeout bounds the transaction of a group; default 4 s, at least 1 ms.
	AttemptTimeout time.Duration
	// Log gets what a group failed with; nil for none.
	Log *slog.Logger
	// StopTimeout is how long Run goes on with what is in the line after its context has ended; default 8 s.
	StopTimeout time.Duration
}

func (c Config) withDefaults() (Config, error) {
	for _, d := range []struct {
		field *int
		value int
	}{{&c.GroupMax, 200}, {&c.LineMax, 8192}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = 4 * time.Second
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 8 * time.Second
	}
	if c.GroupMax < 1 || c.LineMax < c.GroupMax || c.AttemptTimeout < time.Millisecond || c.StopTimeout < time.Millisecond {
		return c, fmt.Errorf("verbs: want 1 ≤ group_max (%d) ≤ line_max (%d), attempt_timeout (%s) and stop_timeout (%s) ≥ 1ms",
			c.GroupMax, c.LineMax, c.AttemptTimeout, c.StopTimeout)
	}
	return c, nil
}

// Groups commits calls in groups, one after the other. It is safe for concurrent use. It uses up to three
// connections: one for a group, one for a group that stalls, and one for the slow line.
type Groups struct {
	db     *pgxpool.Pool
	config Config
	line   *fair.Line[*member]
	// slow is the line of the calls for stocks that were found locked, so that the other calls do not wait for them.
	slow    *fair.Line[*member]
	blocked blocked
}

// New makes a Groups; Run makes it work.
func New(db *pgxpool.Pool, config Config) (*Groups, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Groups{db: db, config: config, line: fair.NewLine[*member](config.LineMax), slow: fair.NewLine[*member](config.LineMax)}, nil
}

// member is one call in the line.
type member struct {
	call     Call
	state    atomic.Int32  // waits, sent or gone
	answered chan struct{} // closed once result and err are set
	result   Result
	err      error
}

// The states of a member.
const (
	waits int32 = iota
	sent        // its group is being committed, or was
	gone        // its caller waits no longer, and nothing was sent
)

func (m *member) answer(r Result, err error) {
	m.result, m.err = r, err
	close(m.answered)
}

// retryAfter is when a call that was refused may be made again.
const retryAfter = time.Second

// Do makes a call in a group with others, and returns once it is committed.
//
// Errors: those of the verb; *inventory.InvalidError, and *tenants.InvalidError for the key; tenants.ErrKeyReused;
// *requests.RefusedError if too many calls wait, Run ends, or ctx's deadline passed before the call's turn came: nothing
// was done; requests.ErrOutcomeUnknown if a commit failed in a way that does not say whether it took effect, or if ctx ends
// during it; and ErrAlone.
func (g *Groups) Do(ctx context.Context, c Call) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	if keyed := c.keyed(); c.Key != "" {
		if err := keyed.Validate(); err != nil {
			return Result{}, err
		}
	}
	m := &member{call: c, answered: make(chan struct{})}
	switch refusal := g.line.Join(c.TenantID, m); refusal {
	case fair.Joined:
	case fair.Closed:
		return Result{}, &requests.RefusedError{Why: requests.WhyClosing, RetryAfter: retryAfter}
	default:
		return Result{}, &requests.RefusedError{Own: refusal == fair.OwnFull, Why: requests.WhyLine, RetryAfter: retryAfter}
	}
	select {
	case <-m.answered:
		return m.result, m.err
	case <-ctx.Done():
	}
	if !m.state.CompareAndSwap(waits, gone) {
		return Result{}, fmt.Errorf("%w: %w", requests.ErrOutcomeUnknown, ctx.Err())
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return Result{}, &requests.RefusedError{Why: requests.WhyTimeout, RetryAfter: retryAfter}
	}
	return Result{}, ctx.Err()
}

// Run commits groups until ctx ends, then closes the line, commits what is in it and returns. What a database that does
// not answer has not committed within StopTimeout of the end is given up.
func (g *Groups) Run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var working sync.WaitGroup
	working.Go(func() {
		g.line.Serve(g.config.GroupMax, func(group []*member) { g.commit(work, group, quick) })
		g.slow.Close()
	})
	working.Go(func() {
		for group := g.slow.Take(g.config.GroupMax); len(group) > 0; group = g.slow.Take(g.config.GroupMax) {
			g.commit(work, group, patient)
		}
	})
	<-ctx.Done()
	g.line.Close()
	defer time.AfterFunc(g.config.StopTimeout, cut).Stop()
	working.Wait()
	return nil
}

// blocked are stocks that other transactions were found to keep locked.
type blocked struct {
	mu    sync.Mutex
	until map[inventory.Ref]time.Time
}

// blockedFor is how long the calls for a stock that was found locked wait in the slow line.
const blockedFor = time.Second

func (b *blocked) note(ref inventory.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for other, until := range b.until {
		if now.After(until) {
			delete(b.until, other)
		}
	}
	if b.until == nil {
		b.until = make(map[inventory.Ref]time.Time)
	}
	b.until[ref] = now.Add(blockedFor)
}

// any reports whether one of the stocks was found locked lately.
func (b *blocked) any(refs []inventory.Ref) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.until) == 0 {
		return false
	}
	now := time.Now()
	for _, ref := range refs {
		if until, ok := b.until[ref]; ok && now.Before(until) {
			return true
		}
	}
	return false
}
