package traffic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/sleep"
)

// customer is one cart, and what is added to it.
type customer struct {
	cart  string
	items []string
	// arrives is when the customer comes, counted from the first one.
	arrives time.Duration
	// twice sends each add two times, with one key.
	twice bool
	// then, unless it is nil, is what the customer does after the outcome of
	// the last item.
	then func(ctx context.Context, last client.Request) error
}

// crowd are customers that share connections to the API.
type crowd struct {
	api *client.Client
	// limit is how many customers there are at one time.
	limit int
	// outcomeWait is how long a customer waits for one outcome.
	outcomeWait time.Duration
	// tally counts the outcomes from now on.
	tally atomic.Pointer[tally]

	// arrived counts customers.
	arrived atomic.Int64
	// sold and removed count units that were checked out, and taken out of a
	// cart. changed counts changed quantities.
	sold, removed, changed atomic.Int64
	// doubles are adds that were sent two times. split are those of them that
	// made two requests.
	doubles, split atomic.Int64
}

// newCrowd makes customers whose calls are sent again for about outcomeWait.
func newCrowd(c client.Config, outcomeWait time.Duration, t *tally) (*crowd, error) {
	c.MaxRetryWait = time.Second
	c.MaxRetries = int(outcomeWait/c.MaxRetryWait) + 1
	api, err := client.New(c)
	if err != nil {
		return nil, err
	}
	crowd := &crowd{api: api, limit: c.Connections, outcomeWait: outcomeWait}
	crowd.tally.Store(t)
	return crowd, nil
}

// ErrStalled means that a request was not decided within the time that a
// customer waits.
var ErrStalled = errors.New("no progress")

// serve lets the customers arrive, and returns once each of them is done. On a
// slow machine they arrive later than planned.
func (c *crowd) serve(ctx context.Context, customers iter.Seq[customer]) error {
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(c.limit)
	began := time.Now()
	for next := range customers {
		if sleep.For(running, time.Until(began.Add(next.arrives))) != nil {
			break // which also ends the customers that are there
		}
		c.arrived.Add(1)
		group.Go(func() error { return c.shop(running, next) })
	}
	if err := group.Wait(); err != nil {
		return cause(ctx, err)
	}
	return context.Cause(ctx)
}

// cause returns why the context ended, if that is the reason of the error.
func cause(ctx context.Context, err error) error {
	if ended := context.Cause(ctx); ended != nil {
		return ended
	}
	return err
}

// shop does what one customer does.
func (c *crowd) shop(ctx context.Context, who customer) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cart %s: %w", who.cart, err)
		}
	}()
	var last client.Request
	for i, item := range who.items {
		if last, err = c.add(ctx, who, item, fmt.Sprintf("%s-add-%d", who.cart, i)); err != nil {
			return fmt.Errorf("item %q: %w", item, err)
		}
	}
	if who.then == nil {
		return nil
	}
	return who.then(ctx, last)
}

// add adds one unit to the cart and waits for the outcome. The tally at the
// time of the call counts it.
func (c *crowd) add(ctx context.Context, who customer, item, key string) (client.Request, error) {
	t, sent := c.tally.Load(), time.Now()
	request, err := c.api.Add(ctx, who.cart, item, 1, keyed(key))
	if err != nil {
		return request, err
	}
	t.accept(time.Since(sent))
	if who.twice {
		again, err := c.api.Add(ctx, who.cart, item, 1, keyed(key))
		if err != nil {
			return request, err
		}
		c.doubles.Add(1)
		if again.RequestID != request.RequestID {
			c.split.Add(1)
		}
	}
	if request, err = c.wait(ctx, request); err != nil {
		return request, err
	}
	t.decide(item, request, time.Since(sent))
	return request, nil
}

// wait returns the finished request, or ErrStalled.
func (c *crowd) wait(ctx context.Context, request client.Request) (client.Request, error) {
	finished, err := c.api.Wait(ctx, request.RequestID, c.outcomeWait)
	if err != nil {
		return request, err
	}
	if !finished.Finished() {
		return request, fmt.Errorf("%w for %s", ErrStalled, c.outcomeWait)
	}
	return finished, nil
}

// set asks for a quantity in place of the present one, and waits for the
// outcome.
func (c *crowd) set(ctx context.Context, cart, item string, quantity int32) (client.Request, error) {
	request, err := c.api.Set(ctx, cart, item, quantity, keyed(cart+"-set"))
	if err != nil {
		return request, err
	}
	return c.wait(ctx, request)
}

// checkout buys what the cart holds.
func (c *crowd) checkout(ctx context.Context, cart string) error {
	sold, err := c.api.Checkout(ctx, cart, keyed(cart+"-checkout"))
	for _, r := range sold {
		c.sold.Add(r.Quantity)
	}
	return err
}

// remove takes an item out of the cart again.
func (c *crowd) remove(ctx context.Context, cart, item string) error {
	removed, err := c.api.Remove(ctx, cart, item, "", keyed(cart+"-remove"))
	c.removed.Add(removed.Released)
	return err
}

// keyed are the options of a call with an idempotency key.
func keyed(key string) *client.CallOpts { return &client.CallOpts{IdempotencyKey: key} }

// stocks makes a call for each item, several at one time, and returns the
// stocks by item.
func (c *crowd) stocks(ctx context.Context, items []string, call func(context.Context, string) (client.Stock, error)) (map[string]client.Stock, error) {
	var mu sync.Mutex
	stocks := make(map[string]client.Stock, len(items))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.limit)
	for _, item := range items {
		group.Go(func() error {
			stock, err := call(ctx, item)
			mu.Lock()
			defer mu.Unlock()
			stocks[item] = stock
			return err
		})
	}
	return stocks, group.Wait()
}
