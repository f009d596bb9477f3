package checkouts

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"
)

const (
	// Margin is how long the holds of an unpaid checkout outlive its deadline,
	// so that it is compensated before they are due.
	Margin = time.Minute
	// KeptFor is how long the holds of a paid checkout are kept for the commit.
	KeptFor = 30 * 24 * time.Hour
	// finalizeWithin is how long the process that has recorded a payment has
	// for committing the holds, before recovery does it.
	finalizeWithin = 5 * time.Second
)

// Validator finds out whether a checkout is paid. Recovery calls it for
// validating checkouts with a CallbackURL.
type Validator interface {
	// Validate may be called several times for one checkout, also at once by
	// several processes, and again after a call whose answer was lost. Every
	// call has the same CheckoutID, which is the idempotency key of the
	// payment. It is called again, with backoff and until the checkout's
	// deadline, after ResultPending and after an error. It is called at least
	// once before a checkout times out; see [Recovery]. ctx ends after
	// Config.AttemptTimeout.
	Validate(ctx context.Context, c Checkout) (Result, error)
}

// Config bounds checkouts. The zero value of a field is its default.
type Config struct {
	// TTL is how long a checkout may wait for its payment; default 15 min.
	TTL time.Duration
	// Validator is nil if payments are answered with Answer only.
	Validator Validator
	// Log receives alerts and failures; default: discarded.
	Log *slog.Logger
	// AttemptTimeout bounds one call of the Validator, and one step of
	// Recovery; default 10 s.
	AttemptTimeout time.Duration
	// BackoffMin is the pause after the first attempt that did not end a
	// checkout, and doubles with each further one up to BackoffMax; defaults
	// 1 s and 1 min.
	BackoffMin, BackoffMax time.Duration
	// Concurrency is how many checkouts one pass of Recovery works on at once;
	// default 128. One tenant alone has at most half as many calls of the
	// Validator at once.
	Concurrency int
	// PassMax is how many checkouts one pass of Recovery takes at most; default
	// 1000.
	PassMax int
	// Every is how often a pass of Recovery that waits for the Validator reads
	// again what is due; default 1 s.
	Every time.Duration
}

// withDefaults returns the config with its defaults, or an error.
func (c Config) withDefaults() (Config, error) {
	c.TTL = cmp.Or(c.TTL, 15*time.Minute)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, 10*time.Second)
	c.BackoffMin, c.BackoffMax = cmp.Or(c.BackoffMin, time.Second), cmp.Or(c.BackoffMax, time.Minute)
	c.Concurrency = cmp.Or(c.Concurrency, 128)
	c.PassMax, c.Every = cmp.Or(c.PassMax, 1000), cmp.Or(c.Every, time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.TTL < time.Second || c.TTL > 24*time.Hour:
		return c, fmt.Errorf("checkouts: want 1s ≤ ttl (%s) ≤ 24h", c.TTL)
	case c.AttemptTimeout < time.Millisecond:
		return c, fmt.Errorf("checkouts: want attempt_timeout (%s) ≥ 1ms", c.AttemptTimeout)
	case c.BackoffMin < time.Millisecond || c.BackoffMax < c.BackoffMin:
		return c, fmt.Errorf("checkouts: want 1ms ≤ backoff_min (%s) ≤ backoff_max (%s)", c.BackoffMin, c.BackoffMax)
	case c.Concurrency < 1 || c.PassMax < 1 || c.Every < time.Millisecond:
		return c, fmt.Errorf("checkouts: want concurrency (%d) and pass_max (%d) ≥ 1, every (%s) ≥ 1ms", c.Concurrency, c.PassMax, c.Every)
	}
	return c, nil
}

// backoff is the pause after the given attempt, from 1.
func (c *Config) backoff(attempt int32) time.Duration {
	pause := c.BackoffMin
	for range attempt - 1 {
		if pause >= c.BackoffMax/2 {
			return c.BackoffMax
		}
		pause *= 2
	}
	return pause
}
