package requestrows_test

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// The model is a shop in memory, with plain values. It runs one step at a time.
// Time is the number of the step.

type modelStock struct {
	stock              int64
	tracked, backorder bool
	maxPerCart         int64 // 0: no limit
}

type modelHold struct {
	id            uuid.UUID
	cart, variant string
	quantity      int64
	status        reservations.Status
	reason        reservations.ReleaseReason
	heldAt        int
	lapsedAt      int // 0: not due yet
	dismissed     bool
}

func (h *modelHold) live() bool { return h.status == reservations.Held && h.lapsedAt == 0 }
func (h *modelHold) due() bool  { return h.status == reservations.Held && h.lapsedAt > 0 }

func (h *modelHold) end(to reservations.Status, reason reservations.ReleaseReason) {
	h.status, h.reason = to, reason
}

type modelRequest struct {
	id            uuid.UUID
	kind          requests.Kind
	cart, variant string
	quantity      int64
	status        requests.Status
	reason        requests.Reason
}

type model struct {
	step     int
	batch    int // how many requests one transaction decides
	stocks   map[string]*modelStock
	requests []*modelRequest
	holds    []*modelHold
}

func (m *model) reserved(variant string) (n int64) {
	for _, h := range m.holds {
		if h.variant == variant && h.status == reservations.Held {
			n += h.quantity
		}
	}
	return n
}

func (m *model) duesOf(variant string) (dues []*modelHold, units int64) {
	for _, h := range m.holds {
		if h.variant == variant && h.due() {
			dues = append(dues, h)
			units += h.quantity
		}
	}
	slices.SortStableFunc(dues, func(a, b *modelHold) int { return a.lapsedAt - b.lapsedAt })
	return dues, units
}

func (m *model) liveOf(cart, variant string) (live []*modelHold, units int64) {
	for _, h := range m.holds {
		if h.cart == cart && (variant == "" || h.variant == variant) && h.live() {
			live = append(live, h)
			units += h.quantity
		}
	}
	return live, units
}

func (m *model) pending(cart string) bool {
	return slices.ContainsFunc(m.requests, func(r *modelRequest) bool { return r.cart == cart && r.status == requests.Queued })
}

// lost reports whether a hold of the cart has expired whose variant was neither
// removed nor added again.
func (m *model) lost(cart string) bool {
	return slices.ContainsFunc(m.holds, func(l *modelHold) bool {
		gone := l.due() || (l.status == reservations.Expired && !l.dismissed)
		return l.cart == cart && gone && !slices.ContainsFunc(m.holds, func(again *modelHold) bool {
			return again.cart == cart && again.variant == l.variant && again.heldAt > l.lapsedAt
		})
	})
}

func (m *model) submit(id uuid.UUID, kind requests.Kind, cart, variant string, quantity int64) {
	r := &modelRequest{id: id, kind: kind, cart: cart, variant: variant, quantity: quantity, status: requests.Queued}
	if s := m.stocks[variant]; s != nil && !s.tracked && kind == requests.Add {
		r.status = requests.Done
	}
	m.requests = append(m.requests, r)
}

// tick decides all queued requests, a batch at a time.
func (m *model) tick() {
	var queued []*modelRequest
	for _, r := range m.requests {
		if r.status == requests.Queued {
			queued = append(queued, r)
		}
	}
	for batch := range slices.Chunk(queued, m.batch) {
		m.step++
		peaks := map[string]int64{} // the highest number of reserved units of a variant during the batch
		for _, r := range batch {
			r.reason = m.decide(r)
			if r.reason == "" {
				r.status = requests.Done
			} else {
				r.status = requests.Failed
			}
			peaks[r.variant] = max(peaks[r.variant], m.reserved(r.variant))
		}
		for variant, peak := range peaks {
			m.reclaim(variant, peak)
		}
	}
}

// decide decides one request; "" means granted. It counts due holds as free,
// and reclaim expires those that are needed.
func (m *model) decide(r *modelRequest) requests.Reason {
	s := m.stocks[r.variant]
	if s == nil {
		return requests.UnknownVariant
	}
	if !s.tracked {
		return ""
	}
	mine, own := m.liveOf(r.cart, r.variant)
	inCart := own + r.quantity
	if r.kind == requests.Set {
		inCart = r.quantity
	} else {
		own = 0
	}
	_, due := m.duesOf(r.variant)
	switch {
	case s.maxPerCart > 0 && inCart > s.maxPerCart:
		return requests.LimitExceeded
	case !s.backorder && s.stock-m.reserved(r.variant)+due+own < r.quantity:
		return requests.OutOfStock
	}
	if r.kind == requests.Set {
		for _, h := range mine {
			h.end(reservations.Released, reservationrows.Replaced)
		}
	}
	m.holds = append(m.holds, &modelHold{id: r.id, cart: r.cart, variant: r.variant, quantity: r.quantity, status: reservations.Held, heldAt: m.step})
	return ""
}

// reclaim expires due holds, the longest due first, until the peak of reserved
// units does not exceed the stock.
func (m *model) reclaim(variant string, peak int64) {
	s := m.stocks[variant]
	if s == nil || s.backorder {
		return
	}
	dues, _ := m.duesOf(variant)
	for _, h := range dues {
		if peak <= s.stock {
			return
		}
		peak -= h.quantity
		h.end(reservations.Expired, reservationrows.TTL)
	}
}

func (m *model) remove(cart, variant string) {
	for _, r := range m.requests {
		if r.cart == cart && (variant == "" || r.variant == variant) && r.status == requests.Queued {
			r.status, r.reason = requests.Failed, requests.Cancelled
		}
	}
	for _, h := range m.holds {
		if h.cart == cart && (variant == "" || h.variant == variant) {
			switch {
			case h.live():
				h.end(reservations.Released, reservations.CartRemoved)
			case h.due():
				h.end(reservations.Expired, reservationrows.TTL)
			}
			h.dismissed = h.dismissed || h.status == reservations.Expired
		}
	}
}

func (m *model) checkout(cart string) error {
	live, _ := m.liveOf(cart, "")
	switch {
	case m.pending(cart):
		return requestrows.ErrRequestsPending
	case m.lost(cart):
		return inventory.ErrHoldExpired
	case len(live) == 0:
		return inventory.ErrCartEmpty
	}
	for _, h := range live {
		h.end(reservations.Committed, "")
		m.stocks[h.variant].stock -= h.quantity
	}
	return nil
}

func (m *model) extend(cart string) error {
	if slices.ContainsFunc(m.holds, func(h *modelHold) bool { return h.cart == cart && h.due() }) {
		return inventory.ErrHoldExpired
	}
	if live, _ := m.liveOf(cart, ""); len(live) == 0 {
		return inventory.ErrCartEmpty
	}
	return nil
}

// sweep expires up to limit due holds, the longest due first, and returns their
// number.
func (m *model) sweep(limit int) (expired int) {
	var dues []*modelHold
	for _, h := range m.holds {
		if h.due() {
			dues = append(dues, h)
		}
	}
	slices.SortStableFunc(dues, func(a, b *modelHold) int { return a.lapsedAt - b.lapsedAt })
	for _, h := range dues[:min(limit, len(dues))] {
		h.end(reservations.Expired, reservationrows.TTL)
		expired++
	}
	return expired
}

// adjust makes the change if it is allowed, and reports whether it is.
func (m *model) adjust(variant string, delta int64) bool {
	s := m.stocks[variant]
	after := s.stock + delta
	if s.tracked && !s.backorder && after < m.reserved(variant) || after < 0 && delta < 0 {
		return false
	}
	s.stock = after
	return true
}

// pick draws one of the holds, in any status, or nil if there never was one.
func (m *model) pick(t *rapid.T) *modelHold {
	if len(m.holds) == 0 {
		return nil
	}
	return m.holds[rapid.IntRange(0, len(m.holds)-1).Draw(t, "hold")]
}

// sameError reports whether the error is the one that the model returns.
func sameError(got, want error) bool {
	return (got == nil) == (want == nil) && (want == nil || errors.Is(got, want)) && !errors.Is(got, context.DeadlineExceeded)
}
