package ratelimit

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/holdfast/holdfast/internal/invalid"
)

// ratesMax is how many rates one item is counted in at most.
const ratesMax = 4

// Rate asks for an amount of a limit that is refilled evenly over a window. It
// limits how often something is done: it leaves no record and cannot be
// settled.
type Rate struct {
	// Scope is what is limited, 1–255 characters.
	Scope string
	// Amount is how much of the limit the item takes, Limit how much there is:
	// 1 to RateLimitMax each.
	Amount, Limit int64
	// Window is how long an exhausted rate takes to be full again, 1 s to
	// RateWindowMax.
	Window time.Duration
}

// Bounds of a rate.
const (
	RateLimitMax  = 1_000_000_000
	RateWindowMax = 24 * time.Hour
	scopeMax      = 255
)

func (r *Rate) validate() error {
	if message := invalid.Text(r.Scope, scopeMax); message != "" {
		return &InvalidError{Field: "scope", Message: message}
	}
	switch {
	case r.Amount < 1 || r.Amount > RateLimitMax:
		return &InvalidError{Field: "amount", Message: fmt.Sprintf("must be between 1 and %d", RateLimitMax)}
	case r.Limit < 1 || r.Limit > RateLimitMax:
		return &InvalidError{Field: "limit", Message: fmt.Sprintf("must be between 1 and %d", RateLimitMax)}
	case r.Window < time.Second || r.Window > RateWindowMax:
		return &InvalidError{Field: "window", Message: "must be between 1s and " + RateWindowMax.String()}
	}
	return nil
}

// State is what is left of a rate.
type State struct {
	// Remaining is how much is left right after the decision.
	Remaining int64
	// Wait is after how long the amount fits if nothing else is counted: 0 if
	// it was counted or fitted, negative if it exceeds the limit and never
	// fits.
	Wait time.Duration
	// Reset is after how long the rate is full again.
	Reset time.Duration
}

// cell is a rate in the terms of GCRA, in nanoseconds. Counting it moves the
// theoretical arrival time (TAT) ahead by cost: the emission interval times the
// amount. The TAT may be at most tolerance ahead of now: the burst tolerance
// with one emission interval included.
type cell struct {
	Rate
	cost, tolerance int64
}

// newCell rounds the cost up. The tolerance includes what the rounding adds
// over the whole limit. So exactly Limit fits at once, provided that the
// emission interval has at least as many nanoseconds as the limit has units.
func newCell(r Rate) cell {
	window, interval := int64(r.Window), share(int64(r.Window), 1, r.Limit)
	c := cell{r, never, window + min(r.Limit, interval-1)}
	if r.Amount <= r.Limit {
		c.cost = share(window, r.Amount, r.Limit)
	}
	return c
}

// never is the cost of more than the limit. It exceeds every window.
const never = 1 << 60

// share is whole·part/of, rounded up; part is at most of.
func share(whole, part, of int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(part))
	lo, carry := bits.Add64(lo, uint64(of-1), 0)
	quotient, _ := bits.Div64(hi+carry, lo, uint64(of))
	return int64(quotient)
}

// fits reports whether the cell conforms: whether a rate with this TAT has room
// for it.
func (c *cell) fits(now, tat int64) bool { return tat+c.cost <= now+c.tolerance }

// state is the state of a rate with this TAT. counted means that the TAT
// includes the cell.
func (c *cell) state(now, tat int64, counted bool) (s State) {
	if room := now + c.tolerance - tat; room > 0 {
		hi, lo := bits.Mul64(uint64(room), uint64(c.Limit))
		left, _ := bits.Div64(hi, lo, uint64(c.Window))
		s.Remaining = min(int64(left), c.Limit)
	}
	s.Reset = time.Duration(tat - now)
	switch {
	case counted:
	case c.Amount > c.Limit:
		s.Wait = -1
	default:
		s.Wait = time.Duration(max(0, tat+c.cost-now-c.tolerance))
	}
	return s
}

// InvalidError is invalid input: the field and what is wrong with it, in words
// for the caller.
type InvalidError = invalid.Error

// ExceededError means that a rate has too little left. Nothing was counted for
// the item, and the caller's transaction can go on.
type ExceededError struct {
	Rate
	State
}

func (e *ExceededError) Error() string {
	return fmt.Sprintf("ratelimit: rate of %s exceeded: %d asked for, %d of %d left", e.Scope, e.Amount, e.Remaining, e.Limit)
}
