package queues

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/requests"
)

// DrainConfig bounds a drain. The zero value of a field is its default.
type DrainConfig struct {
	// Batch is how many requests one transaction decides at most; default 2,000
	// for hot, 500 for normal.
	Batch int
	// AgeMax is how long a request may wait; an older one fails with
	// expired_in_queue. Default 10 minutes.
	AgeMax time.Duration
	// TransactionTimeout bounds one transaction; default 10 s.
	TransactionTimeout time.Duration
	// StockWait is how long a direct decision waits for its stock; default 100
	// ms, the time of a few dozen such decisions, one after the other.
	StockWait time.Duration
	Terms     inventory.Terms
	// Finished receives the requests that a transaction has finished, after its
	// commit, for callers of the same process that wait
	// (requestrows.Watcher.Finished); nil for none. It must return quickly and
	// must not keep the slice.
	Finished func([]requests.Request)
	// Wake wakes the drains of streams that got requests from a drain; nil leaves
	// them to the next tick.
	Wake  func(context.Context, []lanes.Stream) error
	Retry RetryConfig
}

func (c DrainConfig) withDefaults() (DrainConfig, error) {
	c.Batch = cmp.Or(c.Batch, 500)
	c.AgeMax = cmp.Or(c.AgeMax, 10*time.Minute)
	c.TransactionTimeout = cmp.Or(c.TransactionTimeout, 10*time.Second)
	c.StockWait = cmp.Or(c.StockWait, 100*time.Millisecond)
	if c.Batch < 1 || c.Batch > 10_000 || c.AgeMax <= 0 || c.TransactionTimeout <= 0 || c.StockWait <= 0 {
		return c, fmt.Errorf("want 1 ≤ batch (%d) ≤ 10000, age_max (%s), transaction_timeout (%s) and stock_wait (%s) > 0", c.Batch, c.AgeMax, c.TransactionTimeout, c.StockWait)
	}
	var err error
	c.Terms, err = c.Terms.WithDefaults()
	if err != nil {
		return c, err
	}
	c.Retry, err = c.Retry.withDefaults()
	return c, err
}
