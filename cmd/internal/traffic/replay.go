package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/progress"
)

// ReplayConfig is what to replay, and on which API. The zero value of a field
// is its default, where it has one.
type ReplayConfig struct {
	// URLs are the API's addresses, called in turn. Key is an API key with the
	// scopes cart and stock.
	URLs []string
	Key  string
	// Baskets has one basket per line, items separated by commas.
	Baskets io.Reader
	// Stock is the stock of every item, set before the first add; 0 or more.
	Stock int64
	// Connections is how many customers there are at one time; default 64.
	Connections int
	// Progress receives the progress if it is a terminal; nil for none.
	Progress io.Writer
	// StallAfter is how long a customer waits for one outcome; default 1
	// minute.
	StallAfter time.Duration
}

// Replay sends the baskets and waits for every outcome. The report is also
// complete if Verified is false, which is not an error. Errors: no key, a file
// that cannot be read, an API that refuses a call (a *client.Error), ErrStalled,
// ctx's.
func Replay(ctx context.Context, c ReplayConfig) (Report, error) {
	if c.Connections == 0 {
		c.Connections = 64
	}
	if c.StallAfter == 0 {
		c.StallAfter = time.Minute
	}
	if c.Connections < 1 || c.Stock < 0 || c.StallAfter < 0 {
		return Report{}, fmt.Errorf("replay: want connections (%d) ≥ 1, stock (%d) ≥ 0, stall_after (%s) ≥ 0", c.Connections, c.Stock, c.StallAfter)
	}
	list, err := readBaskets(c.Baskets)
	if err != nil {
		return Report{}, err
	}
	t := newTally()
	var retries atomic.Int64
	shoppers, err := newCrowd(client.Config{
		URLs: c.URLs, Key: c.Key, Connections: c.Connections, Retrying: func(error) { retries.Add(1) },
	}, c.StallAfter, t)
	if err != nil {
		return Report{}, err
	}
	defer shoppers.api.Close()
	demand := list.demand()
	items := slices.Sorted(maps.Keys(demand))
	patch := client.StockPatch{Stock: &c.Stock, Tracked: new(true), Backorder: new(false)}
	before, err := shoppers.stocks(ctx, items, func(ctx context.Context, item string) (client.Stock, error) {
		return shoppers.api.SetStock(ctx, item, patch, nil)
	})
	if err != nil {
		return Report{}, fmt.Errorf("set the stocks: %w", err)
	}
	began := time.Now()
	if err := shoppers.replay(ctx, list, c.Progress, t); err != nil {
		return Report{}, err
	}
	report := newReport(list, t, time.Since(began))
	after, err := shoppers.stocks(ctx, items, shoppers.api.Stock)
	if err != nil {
		return Report{}, fmt.Errorf("read the stocks: %w", err)
	}
	report.Differences = differences(items, demand, t.items, before, after)
	report.Verified = len(report.Differences) == 0
	report.Connections, report.Retries = c.Connections, retries.Load()
	return report, nil
}

// replay lets a customer arrive for each basket, as soon as one before is done.
func (c *crowd) replay(ctx context.Context, list basketList, terminal io.Writer, t *tally) error {
	if f, ok := terminal.(*os.File); ok && progress.IsTerminal(f) {
		v := &view{out: f, kinds: []kind{{"items", []*tally{t}}}}
		defer v.start()()
	}
	run := randomName()
	err := c.serve(ctx, func(yield func(customer) bool) {
		for _, b := range list.baskets {
			if !yield(customer{cart: fmt.Sprintf("replay-%s-%d", run, b.line), items: b.items}) {
				return
			}
		}
	})
	if errors.Is(err, ErrStalled) {
		now := t.counts()
		return fmt.Errorf("%w: %d of %d accepted, %d decided", err, now.accepted, list.items, now.decided())
	}
	return err
}
