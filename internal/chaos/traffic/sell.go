package traffic

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/sleep"
)

// The kit and the allotment of a shop, and the variants that only sell uses. lamp
// is hot, so the lines of a kit are decided in two lanes.
const (
	tent, peg, lamp, scarce = "tent", "peg", "lamp", "scarce"

	kit  = "camp"
	club = "club"

	stall = "stall" // is deleted and made again
)

// sell sells kits, from an allotment, by a waiting list, in parts and from a stock
// that is deleted, and takes units back. Its requests are not among those of the record: package verify, the
// sums of units and the audit rows show whether their effects are right.
func (s *shopper) sell(ctx context.Context) {
	for !s.ended() && ctx.Err() == nil {
		b := &basket{shopper: s, tenant: s.tenants[s.random.IntN(len(s.tenants))], id: newName("cart")}
		deals := []func(context.Context){b.kits, b.allotment, b.line, b.parts, b.move, b.fleeting}
		deals[s.random.IntN(len(deals))](ctx)
		switch n := s.random.IntN(100); {
		case n < 35:
			b.try(ctx, http.MethodPost, client.Path("carts", b.id, "checkout"), nil, "cart_empty", "hold_expired", "requests_pending", "conflicting_state")
		case n < 80:
			b.try(ctx, http.MethodDelete, client.Path("carts", b.id), nil)
		default: // the holds expire
		}
		if s.odds(20) {
			b.adjust(ctx, []string{tent, scarce}[s.random.IntN(2)], 1)
		}
		_ = sleep.For(ctx, time.Duration(s.random.IntN(100))*time.Millisecond) // or ctx ends
	}
}

// try makes a call under a key and returns its body, nil for another answer than
// a success. codes are those of the refusals that are no findings.
func (b *basket) try(ctx context.Context, method, path string, body any, codes ...string) []byte {
	c := b.call("sell", method, path, body)
	c.key = newName("key")
	if b.odds(50) {
		c.wait = 1
	}
	r, known := b.settle(ctx, b.random, c)
	switch {
	case !known:
		return nil
	case !r.ok():
		b.expect(c, &r, codes...)
		return nil
	}
	return r.body
}

// hold adds units to the cart, and returns the reservation if they are held soon.
func (b *basket) hold(ctx context.Context, body map[string]any) (held uuid.UUID) {
	var v View
	if json.Unmarshal(b.try(ctx, http.MethodPost, client.Path("carts", b.id, "items"), body), &v) != nil || v.Reservation == nil {
		return uuid.Nil
	}
	return v.Reservation.ReservationID
}

func (b *basket) kits(ctx context.Context) {
	b.try(ctx, http.MethodPut, client.Path("kits", kit), map[string]any{"parts": []map[string]any{
		{"variant_id": tent, "quantity": 1}, {"variant_id": peg, "quantity": 1 + b.random.IntN(4)}, {"variant_id": lamp, "quantity": 1},
	}})
	for range 1 + b.random.IntN(2) {
		b.hold(ctx, map[string]any{"kit_id": kit, "quantity": 1 + b.random.IntN(2)})
	}
	if b.odds(40) {
		b.try(ctx, http.MethodDelete, client.Path("carts", b.id, "kits", kit), nil)
	}
}

func (b *basket) allotment(ctx context.Context) {
	variant := []string{tent, lamp}[b.random.IntN(2)]
	path := client.Path("stocks", variant, "allotments", club)
	if b.odds(50) {
		body := map[string]any{"quantity": 1 + b.random.IntN(6)}
		if b.odds(50) {
			body["expires_at"] = time.Now().Add(time.Duration(2+b.random.IntN(4)) * time.Second)
		}
		b.try(ctx, http.MethodPut, path, body, "below_reserved", "out_of_stock", "invalid") // invalid: the end has passed
	}
	for range 1 + b.random.IntN(3) {
		body := map[string]any{"variant_id": variant, "quantity": 1 + b.random.IntN(2)}
		if b.odds(70) {
			body["allotment"] = club
		}
		b.hold(ctx, body)
	}
	if b.odds(30) {
		b.try(ctx, http.MethodPatch, client.Path("carts", b.id, "items", variant), map[string]any{"quantity": 1 + b.random.IntN(3), "allotment": club})
	}
	if b.odds(10) {
		b.try(ctx, http.MethodDelete, path, nil, "not_found")
	}
}

func (b *basket) line(ctx context.Context) {
	b.hold(ctx, map[string]any{"variant_id": scarce, "quantity": 1 + b.random.IntN(2), "wait_for_stock": true})
	_ = sleep.For(ctx, time.Duration(b.random.IntN(2000))*time.Millisecond) // or ctx ends
}

func (b *basket) parts(ctx context.Context) {
	held := b.hold(ctx, map[string]any{"variant_id": peg, "quantity": 3})
	if held == uuid.Nil {
		return
	}
	var sold struct{ Committed Reservation }
	body := b.try(ctx, http.MethodPost, client.Path("reservations", held.String(), "commit"), map[string]any{"quantity": 2}, "conflicting_state")
	if json.Unmarshal(body, &sold) == nil && b.odds(60) {
		path := client.Path("reservations", sold.Committed.ReservationID.String(), "return")
		b.try(ctx, http.MethodPost, path, map[string]any{"quantity": 1 + b.random.IntN(3), "reason": "did not fit"}, "return_exceeds")
	}
}

func (b *basket) fleeting(ctx context.Context) {
	path := client.Path("stocks", stall)
	lane := []string{"auto", "normal", "hot"}[b.random.IntN(3)]
	b.try(ctx, http.MethodPut, path, map[string]any{"stock": 1 + b.random.IntN(4), "lane": lane}, "below_reserved")
	b.hold(ctx, map[string]any{"variant_id": stall, "quantity": 1 + b.random.IntN(2), "wait_for_stock": b.odds(30)})
	if b.odds(50) {
		b.try(ctx, http.MethodDelete, path, nil, "below_reserved", "not_found")
	}
}

// move adds units to a cart whose holds then move to this one.
func (b *basket) move(ctx context.Context) {
	guest := &basket{shopper: b.shopper, tenant: b.tenant, id: newName("guest")}
	guest.hold(ctx, map[string]any{"variant_id": tent, "quantity": 1})
	guest.hold(ctx, map[string]any{"variant_id": scarce, "quantity": 1, "wait_for_stock": true})
	b.try(ctx, http.MethodPost, client.Path("carts", guest.id, "transfer"), map[string]any{"to": b.id}, "requests_pending")
}
