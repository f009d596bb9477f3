package admission

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/groupcommit"
	"github.com/holdfast/holdfast/ratelimit"
)

// rateCache is a negative cache: what this process has recently learned of
// rates that were locked or exhausted. A caller that cannot be counted is
// refused without a transaction, and delays no group. It is bounded, and safe
// for concurrent use. Times are those of the process.
type rateCache struct {
	locked *groupcommit.LockedSet[ratelimit.RateRef]

	mu sync.Mutex
	// exhausted are rates that had too little left when a committed transaction
	// read them.
	exhausted map[ratelimit.RateRef]exhaustedRate
}

// exhaustedRate is a rate that had too little left.
type exhaustedRate struct {
	ratelimit.Rate
	ratelimit.State
	seen time.Time
}

const (
	// rateCacheMax is how many rates of either sort are remembered.
	rateCacheMax = 10_000
	// exhaustedFor is how long an exhausted rate is not read again, however
	// long its Wait is: its limit may have been changed.
	exhaustedFor = time.Second
)

// UnknownState is the state of a rate that was not read, because another rate
// of the same request had too little left.
var UnknownState = ratelimit.State{Remaining: -1}

func newRateCache() *rateCache {
	return &rateCache{locked: groupcommit.NewLockedSet[ratelimit.RateRef](rateCacheMax), exhausted: make(map[ratelimit.RateRef]exhaustedRate)}
}

// after is the state at now if nothing was counted since.
func (r *exhaustedRate) after(now time.Time) ratelimit.State {
	ago := now.Sub(r.seen)
	return ratelimit.State{Remaining: r.Remaining, Wait: r.Wait - ago, Reset: max(r.Reset-ago, 0)}
}

// markLocked remembers that another transaction keeps the rates locked.
func (c *rateCache) markLocked(now time.Time, rates []ratelimit.RateRef) {
	c.locked.MarkLocked(now, rates...)
}

// markExhausted remembers those of a refused item's rates that had too little
// left at the moment seen, by the states of its result.
func (c *rateCache) markExhausted(seen time.Time, tenantID uuid.UUID, rates []ratelimit.Rate, states []ratelimit.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, state := range states {
		if state.Wait <= 0 {
			continue
		}
		if len(c.exhausted) >= rateCacheMax {
			for ref := range c.exhausted {
				delete(c.exhausted, ref) // any: the next transaction reads it again
				break
			}
		}
		c.exhausted[ratelimit.RateRef{TenantID: tenantID, Scope: rates[i].Scope}] = exhaustedRate{rates[i], state, seen}
	}
}

// lookup returns why a request with these rates cannot be counted at now, or
// nil if it may be. The error is a *RefusedError if a rate is locked, or a
// [*ratelimit.ExceededError] with the states, which are UnknownState where the
// cache knows nothing. A rate that was refused with another amount, limit or
// window does not count.
func (c *rateCache) lookup(now time.Time, tenantID uuid.UUID, rates []ratelimit.Rate) ([]ratelimit.State, error) {
	for _, r := range rates {
		if c.locked.IsLocked(now, ratelimit.RateRef{TenantID: tenantID, Scope: r.Scope}) {
			return nil, &RefusedError{Why: WhyBusy, RetryAfter: minRetryAfter}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.exhausted) == 0 {
		return nil, nil
	}
	states := make([]ratelimit.State, len(rates))
	var exceeded *ratelimit.ExceededError
	for i, r := range rates {
		states[i] = UnknownState
		ref := ratelimit.RateRef{TenantID: tenantID, Scope: r.Scope}
		known, ok := c.exhausted[ref]
		if !ok || known.Rate != r {
			continue
		}
		state := known.after(now)
		if state.Wait <= 0 || now.Sub(known.seen) > exhaustedFor {
			delete(c.exhausted, ref)
			continue
		}
		states[i] = state
		if exceeded == nil {
			exceeded = &ratelimit.ExceededError{Rate: r, State: state}
		}
	}
	if exceeded == nil {
		return nil, nil
	}
	return states, exceeded
}
