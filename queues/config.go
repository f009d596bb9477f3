package queues

import (
	"fmt"
	"time"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// DrainConfig bounds a drain. The zero value of a field is its default.
type DrainConfig struct {
	// Batch is how many requests one transaction decides at most; default 2,000 for hot, 500 for normal.
	Batch int
	// AgeMax is how long a request may wait; older ones fail with expired_in_queue. Default 10 minutes.
	AgeMax time.Duration
	// TransactionTimeout bounds one transaction; default 10 s.
	TransactionTimeout time.Duration
	Terms              inventory.Terms
	// Finished receives the requests that a transaction has finished, after its commit, as for callers of the same process
	// that wait (requests.Watcher.Finished); nil for none. It must be quick, and keep nothing of the slice.
	Finished func([]requests.Request)
	Careful  CarefulConfig
}

func (c LaneConfig) withDefaults() (LaneConfig, error) {
	setDefault(&c.Concurrency, 2)
	setDefault(&c.ServeFor, 5*time.Second)
	setDefault(&c.TickEvery, time.Second)
	setDefault(&c.StopTimeout, 7*time.Second)
	setDefault(&c.Parts, 1)
	if c.Concurrency < 1 || min(c.ServeFor, c.TickEvery, c.StopTimeout) <= 0 {
		return c, fmt.Errorf("want concurrency (%d) ≥ 1, serve_for (%s), tick_every (%s) and stop_timeout (%s) > 0",
			c.Concurrency, c.ServeFor, c.TickEvery, c.StopTimeout)
	}
	if c.Part < 0 || c.Part >= c.Parts {
		return c, fmt.Errorf("want 0 ≤ part (%d) < parts (%d)", c.Part, c.Parts)
	}
	var err error
	c.DrainConfig, err = c.DrainConfig.withDefaults()
	return c, err
}

func (c DrainConfig) withDefaults() (DrainConfig, error) {
	setDefault(&c.Batch, 500)
	setDefault(&c.AgeMax, 10*time.Minute)
	setDefault(&c.TransactionTimeout, 10*time.Second)
	if c.Batch < 1 || c.Batch > 10_000 || c.AgeMax <= 0 || c.TransactionTimeout <= 0 {
		return c, fmt.Errorf("want 1 ≤ batch (%d) ≤ 10000, age_max (%s) and transaction_timeout (%s) > 0", c.Batch, c.AgeMax, c.TransactionTimeout)
	}
	var err error
	if c.Terms, err = c.Terms.WithDefaults(); err != nil {
		return c, err
	}
	c.Careful, err = c.Careful.withDefaults()
	return c, err
}

func (c CarefulConfig) withDefaults() (CarefulConfig, error) {
	setDefault(&c.AttemptsMax, 5)
	setDefault(&c.Backoff, 500*time.Millisecond)
	setDefault(&c.BackoffMax, 10*time.Second)
	setDefault(&c.ClaimFor, 15*time.Second)
	if c.AttemptsMax < 1 || c.Backoff <= 0 || c.BackoffMax < c.Backoff || c.ClaimFor <= 0 {
		return c, fmt.Errorf("want attempts_max (%d) ≥ 1, 0 < backoff (%s) ≤ backoff_max (%s), claim_for (%s) > 0",
			c.AttemptsMax, c.Backoff, c.BackoffMax, c.ClaimFor)
	}
	return c, nil
}

// setDefault gives a field that was left out its default.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
