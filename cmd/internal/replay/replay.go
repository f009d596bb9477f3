package replay

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/replay/baskets"
)

// Config is what to replay, and on which API. The zero value of a field is its
// default, where it has one.
type Config struct {
	// URLs are the API's addresses, called in turn. Key is an API key with the
	// scopes cart and stock.
	URLs []string
	Key  string
	// Baskets has one basket per line, items separated by commas; see package
	// baskets.
	Baskets io.Reader
	// Stock is the stock of every item, set before the first add; 0 or more.
	Stock int64
	// Connections is how many calls are in flight at one time, 4 or more;
	// default 64.
	Connections int
	// Prefix begins every cart id and idempotency key; default "replay-" and
	// eight random hexadecimal digits. A repeated prefix repeats the run: adds
	// of the first run are found and not made again, and their holds do not
	// count as new ones.
	Prefix string
	// Progress is where a progress bar is drawn; nil for none. A file that is
	// not a terminal gets none.
	Progress io.Writer
	// StallAfter is how long the run may continue while nothing is accepted or
	// decided; default 1 minute.
	StallAfter time.Duration
}

// Report is the result of a replay. The counts are of items.
type Report struct {
	// Accepted is Held + OutOfStock + FailedOther.
	Accepted    int64 `json:"accepted"`
	Held        int64 `json:"held"`
	OutOfStock  int64 `json:"out_of_stock"`
	FailedOther int64 `json:"failed_other"`
	// Seconds runs from the first add to the last outcome.
	Seconds float64 `json:"seconds"`
	// P50 and P99 are the times from sending an add to knowing its outcome.
	// They cover every sixteenth add, whose outcome is read by long poll. 0
	// without any.
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
	// Adding is how many of the Connections add; the others read outcomes.
	// AcceptMean is the average time of an add until its 202. Adding /
	// AcceptMean is the highest possible rate of adds.
	Connections int     `json:"connections"`
	Adding      int     `json:"adding"`
	AcceptMean  float64 `json:"accept_mean_ms"`
	// Verified means that of every item exactly min(demand, available) is held,
	// the other requests failed as out of stock, and the API's stocks agree.
	// Differences names the first items that differ.
	Verified    bool     `json:"verified"`
	Differences []string `json:"differences,omitempty"`
	// Baskets and Items count what was replayed. BlankLines and BlankItems
	// count what was left out of the file.
	Baskets    int `json:"baskets"`
	Items      int `json:"items"`
	BlankLines int `json:"blank_lines"`
	BlankItems int `json:"blank_items"`
	// Retries is how many calls were sent again.
	Retries int64 `json:"retries"`
}

// ErrStalled means that nothing was accepted and nothing decided for
// StallAfter.
var ErrStalled = errors.New("no progress")

// run is a replay in progress.
type run struct {
	config   Config
	shop     *client.Client
	list     baskets.List
	orders   []order
	accepted atomic.Int64
	decided  atomic.Int64
	adding   atomic.Int64 // sum of nanoseconds that the accepted adds took until their 202
}

// order is a basket in progress.
type order struct {
	cart string
	// requests are the ids of its adds, and outcomes their outcomes, in the
	// order of its items. Each is written by one goroutine and read by
	// goroutines that received it through a channel.
	requests []string
	outcomes []string
	left     atomic.Int32 // items that are not accepted yet
}

// held is the outcome of an add that got its unit. Any other outcome is the
// reason of a failure.
const held = "held"

// Run replays the baskets. The report is also complete if Verified is false,
// which is not an error. Errors: client.ErrNoKey, a file that cannot be read,
// an API that refuses a call (a *client.Error), ErrStalled, ctx's.
func Run(ctx context.Context, c Config) (Report, error) {
	r, err := prepare(c)
	if err != nil {
		return Report{}, err
	}
	defer r.shop.Close()
	before, err := r.stockUp(ctx)
	if err != nil {
		return Report{}, fmt.Errorf("set the stocks: %w", err)
	}
	began := time.Now()
	latencies, err := r.trade(ctx)
	if err != nil {
		return Report{}, err
	}
	report := r.report(time.Since(began), latencies)
	after, err := r.stocks(ctx, r.shop.Stock)
	if err != nil {
		return Report{}, fmt.Errorf("read the stocks: %w", err)
	}
	report.Differences = r.compare(before, after)
	report.Verified = len(report.Differences) == 0
	report.Retries = r.shop.Retries()
	return report, nil
}

func prepare(c Config) (*run, error) {
	if c.Connections == 0 {
		c.Connections = 64
	}
	if c.StallAfter == 0 {
		c.StallAfter = time.Minute
	}
	if c.Connections < 4 || c.Stock < 0 || c.StallAfter < 0 {
		return nil, fmt.Errorf("replay: want connections (%d) ≥ 4, stock (%d) ≥ 0, stall_after (%s) ≥ 0", c.Connections, c.Stock, c.StallAfter)
	}
	if c.Prefix == "" {
		random := make([]byte, 4)
		_, _ = rand.Read(random) // it never fails
		c.Prefix = "replay-" + hex.EncodeToString(random)
	}
	list, err := baskets.Read(c.Baskets)
	if err != nil {
		return nil, err
	}
	shop, err := client.New(client.Config{URLs: c.URLs, Key: c.Key, Connections: c.Connections, RetryFor: c.StallAfter})
	if err != nil {
		return nil, err
	}
	r := &run{config: c, shop: shop, list: list, orders: make([]order, len(list.Baskets))}
	for i, b := range list.Baskets {
		o := &r.orders[i]
		o.cart = fmt.Sprintf("%s-%d", c.Prefix, b.Line)
		o.requests, o.outcomes = make([]string, len(b.Items)), make([]string, len(b.Items))
		o.left.Store(int32(len(b.Items))) // at most baskets.LineMax
	}
	return r, nil
}

// stockUp sets every item's stock and returns the resulting stocks.
func (r *run) stockUp(ctx context.Context) (map[string]client.Stock, error) {
	patch := client.StockPatch{Stock: &r.config.Stock, Tracked: new(true), Backorder: new(false)}
	return r.stocks(ctx, func(ctx context.Context, item string) (client.Stock, error) {
		return r.shop.SetStock(ctx, item, patch, nil)
	})
}

// stocks makes a call for every item, several at a time.
func (r *run) stocks(ctx context.Context, call func(context.Context, string) (client.Stock, error)) (map[string]client.Stock, error) {
	demand := r.list.Demand()
	answers := make(chan client.Stock, len(demand))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.config.Connections)
	for item := range demand {
		group.Go(func() error {
			stock, err := call(ctx, item)
			stock.VariantID = item
			answers <- stock
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	close(answers)
	stocks := make(map[string]client.Stock, len(demand))
	for stock := range answers {
		stocks[stock.VariantID] = stock
	}
	return stocks, nil
}

// watch ends the run with ErrStalled if neither count changes for StallAfter.
func (r *run) watch(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(max(r.config.StallAfter/20, time.Millisecond))
	defer tick.Stop()
	last, moved := int64(-1), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := r.accepted.Load() + r.decided.Load(); now != last {
			last, moved = now, time.Now()
		} else if time.Since(moved) > r.config.StallAfter {
			stop(fmt.Errorf("%w for %s: %d of %d accepted, %d decided", ErrStalled, r.config.StallAfter, r.accepted.Load(), r.list.Items, r.decided.Load()))
			return
		}
	}
}
