package traffic

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/sleep"
)

// change makes some of the calls that are possible before a cart ends.
func (b *basket) change(ctx context.Context) {
	for range b.random.IntN(3) {
		if len(b.requests) == 0 {
			break
		}
		q := b.requests[b.random.IntN(len(b.requests))]
		b.sets = true
		set := &Request{
			Tenant: b.tenant, Cart: b.id, Variant: q.Variant, Quantity: int64(1 + b.random.IntN(4)), Set: true, Correlation: newName("c"), Key: b.maybeKey(),
		}
		b.submit(ctx, set)
		if b.odds(70) {
			b.await(ctx, set)
		}
	}
	if b.odds(15) && len(b.requests) > 0 {
		b.remove(ctx, client.Path("carts", b.id, "items", b.requests[0].Variant))
	}
	if b.odds(20) {
		b.extendCart(ctx)
	}
	if b.odds(20) {
		b.view(ctx)
	}
}

// finish ends the cart, or lets its holds expire.
func (b *basket) finish(ctx context.Context) {
	switch n := b.random.IntN(100); {
	case n < 35:
		b.checkout(ctx)
	case n < 50:
		b.remove(ctx, client.Path("carts", b.id))
	case n < 80:
		for _, h := range b.held() {
			b.single(ctx, &h)
		}
	default:
	}
}

// call makes a call of the cart's tenant, in most cases with a key.
func (b *basket) call(verb, method, path string, body any) *call {
	return &call{verb: verb, tenant: b.tenant, method: method, path: path, body: body, key: b.maybeKey(), correlation: newName("c")}
}

// do settles a call and returns its outcome. Unless the action is empty, it
// records the call as a verb.
func (b *basket) do(ctx context.Context, c *call, action string, targets ...uuid.UUID) (reply, Outcome) {
	r, known := b.settle(ctx, b.random, c)
	outcome := Unknown
	switch {
	case known && r.ok():
		outcome = Done
	case known:
		outcome = Refused
	}
	if action != "" {
		b.Record.verb(&Verb{Tenant: b.tenant, Action: action, Targets: targets, Correlation: c.correlation, Outcome: outcome})
	}
	return r, outcome
}

// expect adds a finding if the call may not have this answer.
func (b *basket) expect(c *call, r *reply, codes ...string) {
	if !slices.Contains(codes, r.code) {
		b.findings.Add(RuleAnswer, "%s %s was answered %d: %s", c.method, c.path, r.status, r.body)
	}
}

func (b *basket) checkout(ctx context.Context) {
	for range 3 {
		c := b.call("checkout", http.MethodPost, client.Path("carts", b.id, "checkout"), nil)
		r, outcome := b.do(ctx, c, "")
		switch {
		case outcome == Unknown:
			return
		case outcome == Done:
			b.committed(&r)
			return
		case r.code != "requests_pending":
			b.expect(c, &r, "cart_empty", "hold_expired", "conflicting_state")
			return
		}
		for _, q := range b.requests {
			b.await(ctx, q)
		}
	}
}

func (b *basket) committed(r *reply) {
	var answer struct{ Committed []Reservation }
	if err := json.Unmarshal(r.body, &answer); err != nil || len(answer.Committed) == 0 {
		b.findings.Add(RuleAnswer, "a checkout was answered %d with %s", r.status, r.body)
		return
	}
	for i := range answer.Committed {
		h := &answer.Committed[i]
		if h.CartID != b.id || h.Status != "committed" {
			b.findings.Add(RuleRequestKept, "the checkout of cart %s committed %+v", b.id, *h)
		}
		b.Record.ended(h.ReservationID, "committed")
	}
}

// remove empties the cart, or takes a variant out of it.
func (b *basket) remove(ctx context.Context, path string) {
	c := b.call("remove", http.MethodDelete, path, nil)
	r, outcome := b.do(ctx, c, "")
	var answer struct{ Cancelled []uuid.UUID }
	switch {
	case outcome == Unknown:
	case outcome == Refused:
		b.expect(c, &r)
	case json.Unmarshal(r.body, &answer) != nil:
		b.findings.Add(RuleAnswer, "a removal was answered %d with %s", r.status, r.body)
	default:
		b.Record.cancelled(answer.Cancelled)
	}
}

func (b *basket) extendCart(ctx context.Context) {
	c := b.call("extend", http.MethodPost, client.Path("carts", b.id, "extend"), map[string]any{"seconds": 1 + b.random.IntN(3)})
	r, outcome := b.do(ctx, c, "")
	var answer struct{ Extended []Reservation }
	switch {
	case outcome == Unknown:
	case outcome == Refused:
		b.expect(c, &r, "cart_empty", "hold_expired", "lifetime_exceeded", "conflicting_state")
	case json.Unmarshal(r.body, &answer) != nil:
		b.findings.Add(RuleAnswer, "an extension was answered %d with %s", r.status, r.body)
	default:
		b.Record.extended(answer.Extended)
	}
}

// single commits, releases or extends one reservation.
func (b *basket) single(ctx context.Context, h *Reservation) {
	verb := []string{"commit", "commit", "release", "extend"}[b.random.IntN(4)]
	var body any
	if verb == "extend" {
		body = map[string]any{"seconds": 1 + b.random.IntN(3)}
	}
	c := b.call(verb, http.MethodPost, client.Path("reservations", h.ReservationID.String(), verb), body)
	status := map[string]string{"commit": "committed", "release": "released", "extend": "extended"}[verb]
	r, outcome := b.do(ctx, c, "reservation."+status, h.ReservationID)
	var now Reservation
	switch {
	case outcome == Unknown:
	case outcome == Refused:
		b.expect(c, &r, "conflicting_state", "lifetime_exceeded")
		if c.key != "" && verb == "commit" && r.actual == "committed" {
			b.findings.Add(RuleIdempotent, "no other call committed reservation %s, and its commit under key %s is answered 409", h.ReservationID, c.key)
		}
	case json.Unmarshal(r.body, &now) != nil || now.ReservationID != h.ReservationID:
		b.findings.Add(RuleAnswer, "%s was answered %d with %s", c.path, r.status, r.body)
	case verb == "extend":
		b.Record.extended([]Reservation{now})
	case now.Status != status:
		b.findings.Add(RuleOneEnding, "%s of reservation %s was answered with status %s", verb, h.ReservationID, now.Status)
	default:
		b.Record.ended(h.ReservationID, status)
		if c.key != "" && b.odds(20) { // then an add under the same key
			add := &call{tenant: b.tenant, method: http.MethodPost, path: client.Path("carts", b.id, "items"), key: c.key}
			add.body = map[string]any{"variant_id": h.VariantID, "quantity": 1}
			b.reuse(ctx, add)
		}
	}
}

// view reads the cart, and checks that it shows only its own reservations.
func (b *basket) view(ctx context.Context) {
	r := b.once(ctx, b.pick(b.random, 0), &call{verb: "get cart", tenant: b.tenant, method: http.MethodGet, path: client.Path("carts", b.id)})
	if !r.ok() {
		return
	}
	var cart struct{ Reservations []Reservation }
	if err := json.Unmarshal(r.body, &cart); err != nil {
		b.findings.Add(RuleAnswer, "cart %s was answered with %s", b.id, r.body)
	}
	for _, h := range cart.Reservations {
		if h.CartID != b.id {
			b.findings.Add(RuleRequestKept, "cart %s shows reservation %s of cart %s", b.id, h.ReservationID, h.CartID)
		}
	}
}

// manage is the back office: it adds units to the Sale variant, corrects stocks
// and moves a variant between the lanes.
func (s *shopper) manage(ctx context.Context) {
	for round := 0; !s.ended() && ctx.Err() == nil; round++ {
		b := &basket{shopper: s, tenant: s.tenants[s.random.IntN(len(s.tenants))]}
		b.adjust(ctx, "sale", int64(3+s.random.IntN(6)))
		if v := b.tenant.Variants[s.random.IntN(len(b.tenant.Variants))]; v.Role == Ordinary && !v.Digital {
			b.adjust(ctx, v.ID, int64(s.random.IntN(20)-10))
		}
		if round%3 == 0 {
			lane := []string{"hot", "normal", "auto"}[s.random.IntN(3)]
			r, known := s.settle(ctx, s.random, &call{
				verb: "put stock", tenant: b.tenant, method: http.MethodPut, path: client.Path("stocks", "mover"), body: map[string]any{"lane": lane},
			})
			if known && !r.ok() {
				s.findings.Add(RuleAnswer, "PUT of a lane was answered %d: %s", r.status, r.body)
			}
		}
		_ = sleep.For(ctx, 700*time.Millisecond) // or ctx ends
	}
}

// adjust changes a stock under a key, so that the outcome is known in the end:
// done once or never.
func (b *basket) adjust(ctx context.Context, variant string, delta int64) {
	if delta == 0 {
		return
	}
	c := b.call("adjust", http.MethodPost, client.Path("stocks", variant, "adjust"), map[string]any{"delta": delta, "reason": "count"})
	c.key = newName("key")
	r, outcome := b.do(ctx, c, "stock.adjusted")
	switch outcome {
	case Done:
		b.Record.adjust(StockRef{b.tenant.ID, variant}, delta)
	case Refused:
		b.expect(c, &r, "below_reserved")
	case Unknown:
		b.findings.Add(RuleAnswer, "the outcome of an adjustment under a key was not known when the traffic ended")
	}
}

// read lists the stocks at one API in a loop.
func (s *shopper) read(ctx context.Context, api *API) {
	for !s.ended() && ctx.Err() == nil {
		tenant := s.tenants[s.random.IntN(len(s.tenants))]
		r := s.once(ctx, api, &call{verb: "list stocks", tenant: tenant, method: http.MethodGet, path: "/v1/stocks?limit=200"})
		var list struct {
			Items []struct {
				VariantID string `json:"variant_id"`
				Stock     int64
				Reserved  int64
				Available int64
				Tracked   bool
			}
		}
		if r.ok() && json.Unmarshal(r.body, &list) != nil {
			s.findings.Add(RuleAnswer, "the stocks were answered with %s", r.body)
		}
		for _, v := range list.Items {
			if v.Tracked && (v.Available < 0 || v.Reserved < 0 || v.Reserved > v.Stock || v.Available > v.Stock) {
				s.findings.Add(RuleNoOversell, "%s answers for %s of %s: stock %d, reserved %d, available %d", api.Name, v.VariantID, tenant.Name, v.Stock, v.Reserved, v.Available)
			}
		}
		_ = sleep.For(ctx, 300*time.Millisecond) // or ctx ends
	}
}
