package traffic

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/sleep"
)

// shopper is one caller, with separate random choices.
type shopper struct {
	*Traffic
	random *rand.Rand
	name   string
}

// odds returns true with that probability, in percent.
func (s *shopper) odds(percent int) bool { return s.random.IntN(100) < percent }

// shop fills cart after cart, and changes and ends them as buyers do.
func (s *shopper) shop(ctx context.Context) {
	for !s.ended() && ctx.Err() == nil {
		tenant := s.tenants[s.random.IntN(len(s.tenants))]
		b := &basket{shopper: s, tenant: tenant, id: newName("cart")}
		b.fill(ctx)
		b.change(ctx)
		b.finish(ctx)
		_ = sleep.For(ctx, time.Duration(s.random.IntN(150))*time.Millisecond) // or ctx ends
	}
}

// basket is a cart that one shopper fills.
type basket struct {
	*shopper
	tenant   *Tenant
	id       string
	requests []*Request
	sets     bool // whether a quantity was set
}

// fill adds some variants, and waits for most of the outcomes.
func (b *basket) fill(ctx context.Context) {
	for range 1 + b.random.IntN(3) {
		v := b.choose()
		b.submit(ctx, &Request{
			Tenant: b.tenant, Cart: b.id, Variant: v.ID, Quantity: int64(1 + b.random.IntN(3)), Correlation: newName("c"), Key: b.maybeKey(),
		})
	}
	several := b.severalLines(ctx)
	if b.odds(85) {
		for _, q := range append(several, b.requests...) {
			b.await(ctx, q)
		}
	}
}

// severalLines adds one unit each of several variants in one request, in one of
// four carts.
func (b *basket) severalLines(ctx context.Context) []*Request {
	if !b.odds(25) {
		return nil
	}
	q := &Request{Tenant: b.tenant, Cart: b.id, Variant: "/", Correlation: newName("c"), Key: b.maybeKey()}
	for n := 2 + b.random.IntN(3); len(q.Lines) < n; {
		if v := b.choose(); !slices.Contains(q.Lines, v.ID) {
			q.Lines = append(q.Lines, v.ID)
		}
	}
	q.Quantity = int64(len(q.Lines))
	if !b.shopper.submit(ctx, q) {
		return nil
	}
	return []*Request{q}
}

// choose draws a variant: the one on sale, the one that moves between the
// lanes, or any.
func (b *basket) choose() Variant {
	for {
		v := b.tenant.Variants[b.random.IntN(len(b.tenant.Variants))]
		switch {
		case v.Role == Ordered, v.Role == Sold:
		case v.Role == Ordinary && b.odds(40): // so that the other roles are drawn more often
		default:
			return v
		}
	}
}

// maybeKey returns an idempotency key, or none in one of five cases.
func (b *basket) maybeKey() string {
	if b.odds(20) {
		return ""
	}
	return newName("key")
}

// submit sends a request until its outcome is known, and records it.
func (s *shopper) submit(ctx context.Context, q *Request) (acked bool) {
	c := &call{
		verb: verbAdd, tenant: q.Tenant, method: http.MethodPost, path: client.Path("carts", q.Cart, "items"),
		body: map[string]any{"variant_id": q.Variant, "quantity": q.Quantity}, key: q.Key, correlation: q.Correlation,
	}
	if len(q.Lines) > 0 {
		lines := make([]any, len(q.Lines))
		for i, variant := range q.Lines {
			lines[i] = map[string]any{"variant_id": variant, "quantity": 1}
		}
		c.verb, c.body = verbLines, map[string]any{"lines": lines}
	}
	if q.Set {
		c.verb, c.method, c.path = verbSet, http.MethodPatch, client.Path("carts", q.Cart, "items", q.Variant)
		c.body = map[string]any{"quantity": q.Quantity}
	}
	if s.odds(30) {
		c.wait = 1 + s.random.IntN(4)
	}
	s.Record.send(q)
	r, known := s.settle(ctx, s.random, c)
	q.Correlation = c.correlation
	if !known {
		q.Unknown = true
		return false
	}
	if !s.accepted(q, &r) {
		return false
	}
	if q.Key != "" && s.odds(15) {
		s.repeat(ctx, q, c)
	}
	return true
}

// accepted records an answer to a request.
func (s *shopper) accepted(q *Request, r *reply) bool {
	var v View
	switch {
	case r.status != http.StatusOK && r.status != http.StatusAccepted:
		s.findings.Add(RuleAnswer, "an add or set was answered %d %s: %s", r.status, r.code, r.body)
		return false
	case json.Unmarshal(r.body, &v) != nil || v.RequestID == uuid.Nil:
		s.findings.Add(RuleAnswer, "an add or set was answered %d with %s", r.status, r.body)
		return false
	}
	s.Record.ack(q, v.RequestID, r.at)
	if r.status == http.StatusOK {
		s.Record.saw(q, &v, r.api.Name)
	}
	return true
}

// repeat sends a request again under its key, later and to any API. The answer
// must have the same id.
func (s *shopper) repeat(ctx context.Context, q *Request, c *call) {
	again := *c
	again.verb, again.wait = "repeat", 0
	if r, known := s.settle(ctx, s.random, &again); known && s.accepted(q, &r) && !r.replayed {
		s.findings.Add(RuleIdempotent, "request %s was answered to a repetition of key %s without Idempotency-Replayed", q.ID, q.Key)
	}
	other := again
	switch n := s.random.IntN(100); {
	case n < 25 && !q.Set:
		other.body = map[string]any{"variant_id": q.Variant, "quantity": q.Quantity + 1}
		if len(q.Lines) > 0 {
			other.body = map[string]any{"variant_id": q.Lines[0], "quantity": 1}
		}
	case n < 50: // reuse the key for a call that finishes at once
		other.method, other.path, other.body = http.MethodPost, client.Path("carts", q.Cart, "extend"), map[string]any{"seconds": 1}
	default:
		return
	}
	s.reuse(ctx, &other)
}

// reuse makes a call under the key of another call. It must be refused.
func (s *shopper) reuse(ctx context.Context, c *call) {
	c.verb, c.wait, c.correlation = "reuse key", 0, newName("c")
	r, known := s.settle(ctx, s.random, c)
	if !known {
		return
	}
	s.Record.refused(c.correlation, "as a call whose key was used before")
	if r.code != "idempotency_key_reused" {
		s.findings.Add(RuleIdempotent, "%s %s under the key %s of another call was answered %d %s", c.method, c.path, c.key, r.status, r.body)
	}
}

// await polls a request until it is final or ctx ends, and queues it for a
// later read.
func (s *shopper) await(ctx context.Context, q *Request) {
	for q.ID != uuid.Nil {
		if s.known(q) {
			select {
			case s.again <- q:
			default: // enough are queued
			}
			return
		}
		if !s.readRequest(ctx, q, s.pick(s.random, 0), "2") {
			return
		}
	}
}

func (s *shopper) known(q *Request) bool {
	s.Record.mu.Lock()
	defer s.Record.mu.Unlock()
	return q.Final != nil
}

// readRequest reads a request from one API. It returns false if ctx ended.
func (s *shopper) readRequest(ctx context.Context, q *Request, api *API, wait string) bool {
	c := &call{verb: "get request", tenant: q.Tenant, method: http.MethodGet, path: client.Path("requests", q.ID.String())}
	if wait != "" {
		c.verb, c.path = "await request", c.path+"?wait="+wait
	}
	r := s.once(ctx, api, c)
	var v View
	switch {
	case r.status == http.StatusOK && json.Unmarshal(r.body, &v) == nil:
		s.Record.saw(q, &v, api.Name)
		return true
	case r.status == http.StatusNotFound:
		s.findings.Add(RuleNotLost, "request %s, acknowledged at %s, is not found by %s", q.ID, q.Acked.Format("15:04:05.000"), api.Name)
		return false
	case !r.open():
		s.findings.Add(RuleAnswer, "GET request %s was answered %d: %s", q.ID, r.status, r.body)
		return false
	}
	return sleep.For(ctx, 50*time.Millisecond) == nil
}

// rereadFinal reads requests that have been final for a while, from any API.
func (s *shopper) rereadFinal(ctx context.Context) {
	for {
		select {
		case <-s.over:
			return
		case <-ctx.Done():
			return
		case q := <-s.again:
			if s.odds(40) {
				s.readRequest(ctx, q, s.pick(s.random, 0), "")
				_ = sleep.For(ctx, 20*time.Millisecond) // or ctx ends
			}
		}
	}
}

// held returns all reservations that the cart is known to have had.
func (b *basket) held() (hs []Reservation) {
	b.Record.mu.Lock()
	defer b.Record.mu.Unlock()
	for _, q := range b.requests {
		if q.Final != nil && q.Final.Reservation != nil {
			hs = append(hs, *q.Final.Reservation)
		}
	}
	return hs
}

func (b *basket) submit(ctx context.Context, q *Request) {
	if b.shopper.submit(ctx, q) {
		b.requests = append(b.requests, q)
	}
}

// addInOrder adds single units of the ordered variants, one after the other.
func (s *shopper) addInOrder(ctx context.Context) {
	for !s.ended() && ctx.Err() == nil {
		tenant := s.tenants[s.random.IntN(len(s.tenants))]
		lines := slices.DeleteFunc(slices.Clone(tenant.Variants), func(v Variant) bool { return v.Role != Ordered })
		q := &Request{
			Tenant: tenant, Cart: newName("cart"), Variant: lines[s.random.IntN(len(lines))].ID, Quantity: 1, Correlation: newName("c"),
			Key: newName("key"),
		}
		if s.submit(ctx, q) && s.odds(25) {
			s.await(ctx, q)
		}
		_ = sleep.For(ctx, time.Duration(s.random.IntN(60))*time.Millisecond) // or ctx ends
	}
}
