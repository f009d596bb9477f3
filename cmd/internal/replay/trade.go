package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/progress"
	"github.com/holdfast/holdfast/internal/sleep"
)

// sampleEvery sets the share of the adds whose outcomes are waited for
// individually.
const sampleEvery = 16

// add is an item to send.
type add struct{ order, item int }

// sale is a basket whose last item was accepted.
type sale struct {
	order int
	at    time.Time
}

// sample is an accepted add whose outcome is waited for.
type sample struct {
	request string
	sent    time.Time
}

// trade sends every item, in order, and meanwhile polls for every outcome. It
// returns the time of each sampled add until its outcome was known.
func (r *run) trade(ctx context.Context) ([]time.Duration, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go r.watch(ctx, stop)
	bar := progress.New(r.config.Progress, int64(r.list.Items), "decided")
	drawn := make(chan struct{})
	go func() { defer close(drawn); r.follow(ctx, bar) }()

	adds := make(chan add)
	sold := make(chan sale, len(r.orders))
	samples := make(chan sample, r.list.Items/sampleEvery+1)
	latencies := make([][]time.Duration, r.config.Connections/4)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return r.line(running, adds) })
	var tills sync.WaitGroup
	for range r.config.adding() {
		tills.Add(1)
		group.Go(func() error { defer tills.Done(); return r.send(running, adds, sold, samples) })
	}
	for range max(1, r.config.Connections/8) {
		group.Go(func() error { return r.settle(running, sold) })
	}
	for i := range latencies {
		group.Go(func() (err error) { latencies[i], err = r.wait(running, samples); return err })
	}
	go func() { tills.Wait(); close(sold); close(samples) }()
	err := group.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	stop(nil)
	<-drawn
	return slices.Concat(latencies...), err
}

// adding returns how many of the connections add.
func (c Config) adding() int { return c.Connections - c.Connections/4 - c.Connections/8 }

// line hands out the items in the order they arrive.
func (r *run) line(ctx context.Context, adds chan<- add) error {
	defer close(adds)
	for o := range r.orders {
		for i := range r.orders[o].requests {
			select {
			case adds <- add{o, i}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
}

// send adds items to their carts. It passes on every complete cart and every
// sixteenth add.
func (r *run) send(ctx context.Context, adds <-chan add, sold chan<- sale, samples chan<- sample) error {
	for a := range adds {
		o, b := &r.orders[a.order], r.list.Baskets[a.order]
		key := fmt.Sprintf("%s-%d-%d", r.config.Prefix, b.Line, a.item)
		sent := time.Now()
		request, err := r.shop.Add(ctx, o.cart, b.Items[a.item], 1, &client.CallOpts{IdempotencyKey: key})
		if err != nil {
			return fmt.Errorf("line %d, item %q: %w", b.Line, b.Items[a.item], err)
		}
		r.adding.Add(int64(time.Since(sent)))
		o.requests[a.item] = request.RequestID
		if n := r.accepted.Add(1); n%sampleEvery == 0 {
			samples <- sample{request.RequestID, sent}
		}
		if o.left.Add(-1) == 0 {
			sold <- sale{a.order, time.Now()}
		}
	}
	return nil
}

// wait waits for the outcomes of samples, each until it is known.
func (r *run) wait(ctx context.Context, samples <-chan sample) ([]time.Duration, error) {
	var took []time.Duration
	for s := range samples {
		if _, err := r.shop.Wait(ctx, s.request); err != nil {
			return nil, fmt.Errorf("wait for request %s: %w", s.request, err)
		}
		took = append(took, time.Since(s.sent))
	}
	return took, nil
}

// A complete cart is read after a short wait, in which it is usually decided,
// and then less and less often.
const (
	firstPoll    = 150 * time.Millisecond
	minPollPause = 20 * time.Millisecond
	pollPauseMax = 500 * time.Millisecond
)

// settle polls for the outcomes of complete carts.
func (r *run) settle(ctx context.Context, sold <-chan sale) error {
	for s := range sold {
		o := &r.orders[s.order]
		known := 0
		if err := sleep.For(ctx, time.Until(s.at.Add(firstPoll))); err != nil {
			return err
		}
		for wait := minPollPause; ; wait = min(2*wait, pollPauseMax) {
			now, err := r.poll(ctx, o)
			if err != nil {
				return fmt.Errorf("cart %s: %w", o.cart, err)
			}
			r.decided.Add(int64(now - known))
			if known = now; known == len(o.requests) {
				break
			}
			if err := sleep.For(ctx, wait); err != nil {
				return err
			}
		}
	}
	return nil
}

// poll reads a cart, records the outcomes it shows, and returns how many of its
// requests have one. A cart with many failures shows only the latest. A request
// that is neither shown nor unfinished is read individually.
func (r *run) poll(ctx context.Context, o *order) (known int, err error) {
	cart, err := r.shop.Cart(ctx, o.cart)
	if err != nil {
		return 0, err
	}
	shown := make(map[string]string, len(o.requests))
	for _, f := range cart.Failed {
		shown[f.RequestID] = f.Reason
	}
	for _, h := range cart.Reservations {
		shown[h.ReservationID] = held
	}
	for _, u := range cart.Unfinished {
		shown[u.RequestID] = cmp.Or(shown[u.RequestID], unfinished)
	}
	for i, id := range o.requests {
		outcome, ok := shown[id]
		if !ok && o.outcomes[i] == "" {
			request, err := r.shop.Request(ctx, id, 0)
			if err != nil {
				return 0, err
			}
			outcome = outcomeOf(request)
		}
		if outcome != "" && outcome != unfinished {
			o.outcomes[i] = outcome
		}
		if o.outcomes[i] != "" {
			known++
		}
	}
	return known, nil
}

// unfinished marks a request without an outcome.
const unfinished = "unfinished"

func outcomeOf(r client.Request) string {
	switch {
	case !r.Finished():
		return unfinished
	case r.Reservation != nil:
		return held
	default:
		return cmp.Or(r.Reason, "done without a hold")
	}
}
