package admission

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
)

// IntakeConfig bounds the intake. The zero value of a field means its default.
type IntakeConfig struct {
	// GroupMax is how many requests one transaction admits at most; default
	// 500.
	GroupMax int
	// QueueMax is how many callers of one tenant wait for admission to one lane
	// at most while no other tenant has callers there; default 8,192. The
	// callers of all tenants together are at most twice as many. A further
	// caller is refused.
	QueueMax int
	// DepthMax is how many requests wait for their decision in one lane at
	// most, over all processes; default 100,000. This bound does not include
	// the requests that other processes admitted since the load was published.
	// The load is published at most four times per second, so a DepthMax below
	// the number of requests that a lane decides in a second limits its rate.
	DepthMax int
	// TenantSharePercent is how much of DepthMax a tenant may fill while no
	// other tenant has requests waiting, from 1 to 100; the default is 50. The
	// more tenants have requests waiting, the less each may fill: some of the
	// depth stays free for the next tenant, unless this is 100.
	TenantSharePercent int
	// AgeMax is the age of a stream's oldest request above which the stream
	// admits no more; default 10 minutes. It ought to be the age at which the
	// drains expire a request.
	AgeMax time.Duration
	// Committers is how many groups of one lane are committed concurrently;
	// default 1, because one committer makes the largest groups. If Metered,
	// the default is 2: a group's transaction then has several round trips, and
	// another group uses the database between them.
	Committers int
	// CommitTimeout bounds all attempts at a group together; default 8 s, at
	// least 1 ms. AttemptTimeout bounds one attempt, including the wait for a
	// connection; default 4 s, at most CommitTimeout.
	CommitTimeout, AttemptTimeout time.Duration
	// StopTimeout is how long Run continues to commit queued callers after its
	// context has ended; default CommitTimeout.
	StopTimeout time.Duration
	// Metered makes SubmitMetered count rates and require admission tokens. It
	// needs the tables of package metered.
	Metered bool
	// Load returns the published load: the requests that wait for a decision,
	// over all processes. If the published load is older than stale, Load
	// counts and publishes it first, unless another process is counting it or
	// the pause after the last count is not over. If the count fails, Load may
	// return the published load beside the error. One goroutine at a time calls
	// it.
	//
	// If Load is nil, only the callers that wait for admission in this process
	// count. Requests that are admitted do not count, however long they wait.
	Load func(ctx context.Context, stale time.Duration) (lanes.Load, error)
	// Decider decides a group in the transaction that admits it, if all callers
	// of the group wait (Submission.Waits). If nil, the workers decide all
	// requests.
	Decider Decider
	// Observe, if not nil, receives every admitted group before its callers are
	// answered. It must be quick and safe for concurrent use, and must not
	// retain the slice.
	Observe func(group []requestrows.Submission)
}

// Committers is how many groups of one lane an intake commits concurrently by
// default. Each takes a connection.
func Committers(metered bool) int {
	if metered {
		return 2
	}
	return 1
}

func (c IntakeConfig) withDefaults() (IntakeConfig, error) {
	c.GroupMax = cmp.Or(c.GroupMax, 500)
	c.QueueMax = cmp.Or(c.QueueMax, 8192)
	c.DepthMax = cmp.Or(c.DepthMax, 100_000)
	c.TenantSharePercent = cmp.Or(c.TenantSharePercent, 50)
	c.AgeMax = cmp.Or(c.AgeMax, 10*time.Minute)
	c.Committers = cmp.Or(c.Committers, Committers(c.Metered))
	c.CommitTimeout = cmp.Or(c.CommitTimeout, 8*time.Second)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, min(4*time.Second, c.CommitTimeout))
	c.StopTimeout = cmp.Or(c.StopTimeout, c.CommitTimeout)
	if c.DepthMax < 1 || c.TenantSharePercent < 1 || c.TenantSharePercent > 100 || c.AgeMax < time.Millisecond {
		return c, fmt.Errorf("intake: want depth_max (%d) ≥ 1, 1 ≤ tenant_share_percent (%d) ≤ 100, age_max (%s) ≥ 1ms",
			c.DepthMax, c.TenantSharePercent, c.AgeMax)
	}
	if c.GroupMax < 1 || c.Committers < 1 || c.QueueMax < c.GroupMax || c.CommitTimeout < time.Millisecond {
		return c, fmt.Errorf("intake: want 1 ≤ group_max (%d) ≤ queue_max (%d), committers (%d) ≥ 1, commit_timeout (%s) ≥ 1ms",
			c.GroupMax, c.QueueMax, c.Committers, c.CommitTimeout)
	}
	if c.AttemptTimeout < time.Millisecond || c.AttemptTimeout > c.CommitTimeout || c.StopTimeout < time.Millisecond {
		return c, fmt.Errorf("intake: want 1ms ≤ attempt_timeout (%s) ≤ commit_timeout (%s), stop_timeout (%s) ≥ 1ms",
			c.AttemptTimeout, c.CommitTimeout, c.StopTimeout)
	}
	return c, nil
}
