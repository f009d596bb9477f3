package metered

import (
	"fmt"
	"math/bits"
	"time"
)

// RatesMax is how many rates one visit is counted in at most.
const RatesMax = 4

// Rate asks to be counted in a rate: Limit at once, refilled evenly over Window. It is for how often somebody may call:
// it leaves no entry and can't be settled, unlike a [Charge].
type Rate struct {
	// Scope is what is limited, 1–255 characters. Rates and budgets of one name know nothing of each other.
	Scope string
	// Amount is how much of the limit this one takes, Limit how much there is: 1 to RateLimitMax each.
	Amount, Limit int64
	// Window is how long an empty rate takes to be full again, 1 s to RateWindowMax.
	Window time.Duration
}

// Bounds of a rate.
const (
	RateLimitMax  = 1_000_000_000
	RateWindowMax = 24 * time.Hour
)

func (r *Rate) validate() error {
	if err := validateText("scope", r.Scope, TextMax); err != nil {
		return err
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

// Standing is how a rate stands.
type Standing struct {
	// Remaining is what it has left, right after.
	Remaining int64
	// Wait is after how long the amount fits if nothing else comes: 0 if it was counted or would have fitted, below 0 if
	// it never will, because it is more than the limit.
	Wait time.Duration
	// Reset is after how long it is full again.
	Reset time.Duration
}

// OverRateError means that a rate had not enough left. It is ErrOverRate.
type OverRateError struct {
	Rate
	Standing
}

func (e *OverRateError) Error() string {
	return fmt.Sprintf("metered: over the rate of %s: %d asked for, %d of %d left", e.Scope, e.Amount, e.Remaining, e.Limit)
}

// Unwrap returns ErrOverRate.
func (*OverRateError) Unwrap() error { return ErrOverRate }

// counted is a rate as it is reckoned with: all its state is the moment at which it will be full again, in nanoseconds
// since 1970. To be counted moves that moment by cost; it may lie bound ahead at most.
type counted struct {
	Rate
	cost, bound int64
}

// newCounted rounds the cost up, and lets the bound take what that comes to over all of the limit: so Limit fits at once
// and no more, as long as a unit's share of the window is longer than Limit nanoseconds.
func newCounted(r Rate) counted {
	window, unit := int64(r.Window), share(int64(r.Window), 1, r.Limit)
	c := counted{r, never, window + min(r.Limit, unit-1)}
	if r.Amount <= r.Limit {
		c.cost = share(window, r.Amount, r.Limit)
	}
	return c
}

// never is the cost of more than the limit: longer than any window.
const never = 1 << 60

// share is whole·part/of, rounded up; part is at most of.
func share(whole, part, of int64) int64 {
	hi, lo := bits.Mul64(uint64(whole), uint64(part))
	lo, carry := bits.Add64(lo, uint64(of-1), 0)
	quotient, _ := bits.Div64(hi+carry, lo, uint64(of))
	return int64(quotient)
}

// fits reports whether there is room for it in a rate that would be full at fullAt.
func (c *counted) fits(now, fullAt int64) bool { return fullAt+c.cost <= now+c.bound }

// standing is how the rate stands.
func (c *counted) standing(now, fullAt int64, let bool) (s Standing) {
	if room := now + c.bound - fullAt; room > 0 {
		hi, lo := bits.Mul64(uint64(room), uint64(c.Limit))
		left, _ := bits.Div64(hi, lo, uint64(c.Window))
		s.Remaining = min(int64(left), c.Limit)
	}
	s.Reset = time.Duration(fullAt - now)
	switch {
	case let:
	case c.Amount > c.Limit:
		s.Wait = -1
	default:
		s.Wait = time.Duration(max(0, fullAt+c.cost-now-c.bound))
	}
	return s
}
