package requests

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Wake says that a slot of a lane has work.
type Wake struct {
	Lane string
	Slot int16
}

// Ringer makes wakes. A wake is a hint: what none reached is found by the workers' tick.
type Ringer interface {
	// RingTx makes one wake for each slot in the transaction that admits the work.
	RingTx(ctx context.Context, tx pgx.Tx, wakes []Wake) error
	// Ring makes one wake for each slot, for work that is committed, which a worker gets even if none listens now.
	Ring(ctx context.Context, wakes []Wake) error
	// Notify wakes the workers that listen now.
	Notify(ctx context.Context, wakes []Wake) error
}

// IntakeConfig bounds the intake. The zero value of a field is its default.
type IntakeConfig struct {
	// GroupMax is how many requests one transaction admits at most; default 500.
	GroupMax int
	// LineMax is how many callers of one tenant wait for admission to one lane at most while no other's do; default 8,192.
	// All tenants' together are at most twice as many. One more is refused.
	LineMax int
	// DepthMax is how many requests wait for their decision in one lane at most, over all processes; default 100,000.
	// What the other processes have admitted since the load was published comes on top. Less than a lane decides in a
	// second limits its rate, because what is decided is published four times per second at most.
	DepthMax int
	// TenantSharePercent is how much of DepthMax a tenant may fill while no other has anything waiting, 1 to 100; default
	// 50. The more tenants have, the less each may: some of it stays free for the next one, unless this is 100.
	TenantSharePercent int
	// AgeMax is how old the oldest request of a stream may be before no more is let into it; default 10 minutes. It ought
	// to be the age at which the drains give a request up.
	AgeMax time.Duration
	// Committers is how many groups of one lane are committed side by side; default 1, because groups are the larger for
	// it, or 2 if Metered: then a group's transaction waits for the program between its round trips, and another's does not.
	Committers int
	// CommitTimeout bounds what a group may take, all attempts together; default 8 s, at least 1 ms. AttemptTimeout bounds
	// one attempt, its connection included; default 4 s, at most CommitTimeout.
	CommitTimeout, AttemptTimeout time.Duration
	// StopTimeout is how long Run goes on with what is in the line after its context has ended; default CommitTimeout.
	StopTimeout time.Duration
	// Metered lets SubmitMetered count rates and ask for admission tokens. It needs the tables of package metered.
	Metered bool
	// Load returns what waits for a decision, over all processes. If what is published is older than stale, it is
	// counted and published first, unless another process does that now, or a rest follows the last count; where that
	// fails, what was published may be returned beside the error. It is called by one goroutine at a time. With nil
	// the bounds are those of the callers that wait for admission in this process: requests that are admitted no
	// longer count, however long they wait.
	Load func(ctx context.Context, stale time.Duration) (Load, error)
	// Decider decides groups as they are admitted, where all of a group's callers wait (Submission.Waits); nil for none.
	Decider Decider
	// Observe is told of every group that was admitted, before its callers are answered; nil for nobody. It must be quick
	// and safe for concurrent use, and keep nothing of the slice.
	Observe func(group []Submission)
}

// Committers is how many groups of one lane an intake commits side by side by itself. Each has a connection.
func Committers(metered bool) int {
	if metered {
		return 2
	}
	return 1
}

func (c IntakeConfig) withDefaults() (IntakeConfig, error) {
	for _, d := range []struct {
		field *int
		value int
	}{{&c.GroupMax, 500}, {&c.LineMax, 8192}, {&c.Committers, Committers(c.Metered)}, {&c.DepthMax, 100_000}, {&c.TenantSharePercent, 50}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.CommitTimeout == 0 {
		c.CommitTimeout = 8 * time.Second
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = min(4*time.Second, c.CommitTimeout)
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = c.CommitTimeout
	}
	if c.AgeMax == 0 {
		c.AgeMax = 10 * time.Minute
	}
	if c.DepthMax < 1 || c.TenantSharePercent < 1 || c.TenantSharePercent > 100 || c.AgeMax < time.Millisecond {
		return c, fmt.Errorf("intake: want depth_max (%d) ≥ 1, 1 ≤ tenant_share_percent (%d) ≤ 100, age_max (%s) ≥ 1ms",
			c.DepthMax, c.TenantSharePercent, c.AgeMax)
	}
	if c.GroupMax < 1 || c.Committers < 1 || c.LineMax < c.GroupMax || c.CommitTimeout < time.Millisecond {
		return c, fmt.Errorf("intake: want 1 ≤ group_max (%d) ≤ line_max (%d), committers (%d) ≥ 1, commit_timeout (%s) ≥ 1ms",
			c.GroupMax, c.LineMax, c.Committers, c.CommitTimeout)
	}
	if c.AttemptTimeout < time.Millisecond || c.AttemptTimeout > c.CommitTimeout || c.StopTimeout < time.Millisecond {
		return c, fmt.Errorf("intake: want 1ms ≤ attempt_timeout (%s) ≤ commit_timeout (%s), stop_timeout (%s) ≥ 1ms",
			c.AttemptTimeout, c.CommitTimeout, c.StopTimeout)
	}
	return c, nil
}

// SubmitTx admits one request in the caller's transaction: it is queued, and its lane rung, when that commits. Ordinary
// callers want Intake.Submit, which shares the transaction with others and refuses what would wait too long: nothing is
// refused here, counted in rates, or asked for an admission token. Other errors are Submit's; after any of them the caller
// rolls back, because the row may stand already.
//
// The transaction must be READ COMMITTED, else ErrIsolation: an older snapshot would queue the request in a stream that no
// lane reads any more, or miss the first use of its idempotency key.
func SubmitTx(ctx context.Context, tx pgx.Tx, ringer Ringer, s Submission) (Request, error) {
	if err := s.prepare(ctx); err != nil {
		return Request{}, err
	}
	admitted, err := admitTx(ctx, tx, ringer, []Submission{s})
	if err != nil {
		return Request{}, fmt.Errorf("admit request %s: %w", s.RequestID, err)
	}
	a := admitted[Ref{s.TenantID, s.RequestID}]
	return a.view.Request, a.err
}
