package ratelimit

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/groupcommit"
)

// Cache is a negative cache: what this process has recently learned of rates
// that were locked or exhausted. A caller that cannot be counted is refused
// without a transaction, and delays no batch. It is bounded, and safe for
// concurrent use. Times are those of the process.
type Cache struct {
	locked *groupcommit.LockedSet[RateRef]

	mu sync.Mutex
	// exhausted are rates that had too little left when a committed transaction
	// read them.
	exhausted map[RateRef]exhaustedRate
}

// exhaustedRate is a rate that had too little left.
type exhaustedRate struct {
	Rate
	State
	seen time.Time
}

const (
	// cacheMax is how many rates of either sort are remembered.
	cacheMax = 10_000
	// exhaustedFor is how long an exhausted rate is not read again, however
	// long its Wait is: its limit may have been changed.
	exhaustedFor = time.Second
)

// NewCache makes an empty cache.
func NewCache() *Cache {
	return &Cache{locked: groupcommit.NewLockedSet[RateRef](cacheMax), exhausted: make(map[RateRef]exhaustedRate)}
}

// after is the state at now if nothing was counted since.
func (r *exhaustedRate) after(now time.Time) State {
	ago := now.Sub(r.seen)
	return State{Remaining: r.Remaining, Wait: r.Wait - ago, Reset: max(r.Reset-ago, 0)}
}

// MarkLocked remembers that another transaction keeps the rates locked.
func (c *Cache) MarkLocked(now time.Time, rates []RateRef) { c.locked.MarkLocked(now, rates...) }

// MarkExhausted remembers those of a refused item's rates that had too little
// left at the moment seen, by the states of its [Result].
func (c *Cache) MarkExhausted(seen time.Time, tenantID uuid.UUID, rates []Rate, states []State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, state := range states {
		if state.Wait <= 0 {
			continue
		}
		if len(c.exhausted) >= cacheMax {
			for ref := range c.exhausted {
				delete(c.exhausted, ref) // any: the next transaction reads it again
				break
			}
		}
		c.exhausted[RateRef{tenantID, rates[i].Scope}] = exhaustedRate{rates[i], state, seen}
	}
}

// Lookup returns why an item with these rates cannot be counted at now, or nil
// if it may be. The error is ErrLocked, or an [*ExceededError] with the states,
// which are Unknown where the cache knows nothing. A rate that was refused with
// another amount, limit or window does not count.
func (c *Cache) Lookup(now time.Time, tenantID uuid.UUID, rates []Rate) ([]State, error) {
	for _, r := range rates {
		if c.locked.IsLocked(now, RateRef{tenantID, r.Scope}) {
			return nil, ErrLocked
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.exhausted) == 0 {
		return nil, nil
	}
	states := make([]State, len(rates))
	var exceeded *ExceededError
	for i, r := range rates {
		states[i] = Unknown
		ref := RateRef{tenantID, r.Scope}
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
			exceeded = &ExceededError{Rate: r, State: state}
		}
	}
	if exceeded == nil {
		return nil, nil
	}
	return states, exceeded
}
