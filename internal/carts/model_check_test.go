package carts_test

import (
	"errors"
	"slices"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// The answer of a call that changed nothing has no place in the record. It must
// be correct at some moment between the beginning and the end of its call. The
// steps that lock one stock have an order, so these moments are known per
// variant: from the last step that was answered before the call began, to the
// first one whose call began after the call ended.

func ofCart(c *asked) bool { return c.call.CartID != "" }

// scope returns the variants of the call.
func (m *model) scope(c *asked) (variants []string) {
	for variant := range m.stocks {
		if c.call.VariantID == "" || c.call.VariantID == variant {
			variants = append(variants, variant)
		}
	}
	slices.Sort(variants)
	return variants
}

// window returns two places in the record: of the variant's steps, the last one
// that the call certainly saw, and the first one that it certainly did not see.
// A call that changed something did not see its own step.
func (m *model) window(c *asked, variant string) (from, until int) {
	until = len(m.steps) + 1
	if c.step != nil && c.call != nil {
		until = c.step.place
	}
	for _, other := range m.calls {
		if other.step == nil || !other.step.stocks[variant] {
			continue
		}
		if other.ended < c.begun && (other.call != nil || other.view.Status.Finished()) {
			from = max(from, other.step.place)
		}
		if other.begun > c.ended {
			until = min(until, other.step.place)
		}
	}
	return from, until
}

// sometime reports whether, at some moment of the call, a hold of its cart and
// the variant met the condition.
func (m *model) sometime(c *asked, variant string, is func(*modelHold) bool) bool {
	from, until := m.window(c, variant)
	for _, h := range m.holds {
		if h.cart == c.call.CartID && h.variant == variant && h.made < until && h.ended > from && is(h) {
			return true
		}
	}
	return false
}

// gap reports whether, at some moment of the call before a place, the cart held
// nothing of the variant, due or not.
func (m *model) gap(c *asked, variant string, before int) bool {
	from, _ := m.window(c, variant)
	for place := from; place < before; place++ {
		held := false
		for _, h := range m.holds {
			held = held || h.cart == c.call.CartID && h.variant == variant && h.heldAt(place)
		}
		if !held {
			return true
		}
	}
	return false
}

// idle reports whether, at some moment of the call, the cart had no hold of the
// variant that was not due.
func (m *model) idle(c *asked, variant string) bool {
	from, until := m.window(c, variant)
	for place := from; place < until; place++ {
		live := false
		for _, h := range m.holds {
			live = live || h.cart == c.call.CartID && h.variant == variant && h.lapsedIn == 0 && h.heldAt(place)
		}
		if !live {
			return true
		}
	}
	return false
}

func (m *model) checkSubmitted(c *asked) {
	r := m.requests[c.submission.RequestID]
	v := &c.view
	switch {
	case c.err != nil:
		m.fault("%v failed", c)
	case v.Status == requests.Queued && v.Reservation == nil:
	case v.Status != r.status || v.Reason != r.reason:
		m.fault("%v, in the model %v", c, r)
	case (v.Status == requests.Done) != (v.Reservation != nil):
		m.fault("%v with reservation %+v", c, v.Reservation)
	case v.Reservation != nil:
		h := *m.holds[r.id]
		h.expires = v.Reservation.ExpiresAt // the deadline was compared in hold
		if h.ended > h.made {               // and not replaced in the same step
			h.status, h.reason = reservations.Held, ""
		}
		if fault := h.unlike(v.Reservation); fault != "" {
			m.fault("%v with %s", c, fault)
		}
	}
}

// checkAnswer compares the rest of the answer of a verb.
func (m *model) checkAnswer(c *asked) {
	for _, other := range m.calls {
		if other.step != nil && c.step != nil && other.call != nil && other.ended < c.begun && other.step.place >= c.step.place {
			m.fault("%v was answered before %v began, and was recorded after it", other, c)
		}
	}
	m.checkKey(c)
	if c.replayed != "" {
		return
	}
	if c.err == nil && c.step == nil && c.call.Action != inventory.ReleaseCart {
		m.fault("%v changed nothing", c)
	}
	if !ofCart(c) {
		m.checkHold(c)
		return
	}
	switch c.call.Action {
	case inventory.CheckoutCart:
		m.checkCheckout(c)
	case inventory.ReleaseCart:
		m.checkRemoval(c)
	default:
		m.checkExtension(c)
	}
}

// checkHold compares the answer to a call on one hold.
func (m *model) checkHold(c *asked) {
	h := m.holds[c.call.ReservationID]
	if c.err == nil {
		return // change has compared it
	}
	if h == nil {
		if !errors.Is(c.err, reservations.ErrNotFound) {
			m.fault("%v, and there is no such hold", c)
		}
		return
	}
	from, until := m.window(c, h.variant)
	conflict, isConflict := errors.AsType[*reservations.ConflictError](c.err)
	switch {
	case errors.Is(c.err, reservations.ErrNotFound):
		if h.made <= from {
			m.fault("%v, and there is %v", c, h)
		}
	case errors.Is(c.err, reservations.ErrLifetimeExceeded):
		if h.lapsedIn > 0 || h.ended <= from || c.call.Action != inventory.ExtendHold || !m.exceeds(c, h) {
			m.fault("%v, of %v", c, h)
		}
	case !isConflict || conflict.ID != h.id || conflict.Expected != reservations.Held:
		m.fault("%v, of %v", c, h)
	case h.lapsedIn > 0:
		if conflict.Actual != reservations.Expired {
			m.fault("%v, of %v", c, h)
		}
		if c.call.Action == inventory.ReleaseHold && h.ended >= until {
			m.fault("%v did not record the expiry of %v", c, h)
		}
	case conflict.Actual != h.status || h.ended >= until:
		m.fault("%v, of %v", c, h)
	}
}

// exceeds reports whether the call would extend the hold past its lifetime cap.
// Deadlines that other calls moved meanwhile count.
func (m *model) exceeds(c *asked, h *modelHold) bool {
	return h.expires.Add(c.call.By).After(h.first.Add(modelLifetimeMax))
}

// isPending reports whether the call found the request undecided: certainly if
// surely is set, else possibly.
func (m *model) isPending(c *asked, r *modelRequest, surely bool) bool {
	from, until := m.window(c, r.variant)
	if r.cart != c.call.CartID || c.call.VariantID != "" && r.variant != c.call.VariantID {
		return false
	}
	if surely {
		if r.asked != nil && r.asked.ended >= c.begun {
			return false
		}
		if r.cancelledBy != nil {
			return r.cancelledBy.begun > c.ended
		}
		return r.finished >= until
	}
	if r.asked != nil && (r.asked.begun > c.ended || r.asked.view.Status != requests.Queued) {
		return false
	}
	if r.cancelledBy != nil {
		return r.cancelledBy.ended > c.begun
	}
	return r.finished > from
}

// anyPending is isPending for any request.
func (m *model) anyPending(c *asked, surely bool) *modelRequest {
	for _, r := range m.requests {
		if m.isPending(c, r, surely) {
			return r
		}
	}
	return nil
}

// isLost reports whether the call found an unseen expiry of the variant in the
// cart: certainly if surely is set, else possibly. Nothing expires during a
// round. A removal or another hold acknowledges an expiry.
func (m *model) isLost(c *asked, variant string, surely bool) bool {
	if !m.lost[cartVariant{c.call.CartID, variant}] {
		return false
	}
	for _, other := range m.calls {
		v := other.call
		if v == nil || v.Action != inventory.ReleaseCart || v.CartID != c.call.CartID || v.VariantID != "" && v.VariantID != variant {
			continue
		}
		if other.ended < c.begun || surely && other.begun < c.ended {
			return false
		}
	}
	from, until := m.window(c, variant)
	for _, h := range m.holds {
		if h.cart != c.call.CartID || h.variant != variant || h.heldIn != m.round {
			continue
		}
		if h.made <= from || surely && h.made < until {
			return false
		}
	}
	return true
}

// anyLost is isLost for any variant.
func (m *model) anyLost(c *asked, surely bool) string {
	for _, variant := range m.scope(c) {
		if m.isLost(c, variant, surely) {
			return variant
		}
	}
	return ""
}

func (m *model) checkCheckout(c *asked) {
	if errors.Is(c.err, requestrows.ErrRequestsPending) {
		if m.anyPending(c, false) == nil {
			m.fault("%v, and none is pending", c)
		}
		return
	}
	if r := m.anyPending(c, true); r != nil {
		m.fault("%v, although %v is pending", c, r)
	}
	if errors.Is(c.err, inventory.ErrHoldExpired) {
		if m.anyLost(c, false) == "" {
			m.fault("%v, and nothing is lost", c)
		}
		return
	}
	if variant := m.anyLost(c, true); variant != "" {
		m.fault("%v, although its %s is lost", c, variant)
	}
	switch {
	case c.err == nil:
	case !errors.Is(c.err, inventory.ErrCartEmpty):
		m.fault("%v failed", c)
	default:
		m.checkIdle(c)
	}
}

// checkIdle fails a call that found no hold of a variant of which one was held
// all the time.
func (m *model) checkIdle(c *asked) {
	for _, variant := range m.scope(c) {
		if !m.idle(c, variant) {
			m.fault("%v, and some %s is held", c, variant)
		}
	}
}

func (m *model) checkRemoval(c *asked) {
	if c.err != nil {
		m.fault("%v failed", c)
	}
	if c.step == nil {
		m.checkIdle(c)
	}
	for _, h := range m.holds {
		inScope := h.cart == c.call.CartID && (c.call.VariantID == "" || h.variant == c.call.VariantID)
		if !inScope || h.lapsedIn == 0 {
			continue
		}
		_, until := m.window(c, h.variant)
		alongside := c.step != nil && h.ended == c.step.place
		if h.ended >= until && !alongside {
			m.fault("%v left %v", c, h)
		}
	}
	cancelled := 0
	for _, r := range m.requests {
		if r.cancelledBy == c {
			cancelled++
			if !slices.Contains(c.cancelled, r.id) {
				m.fault("%v has cancelled %v", c, r)
			}
		} else if m.isPending(c, r, true) {
			m.fault("%v left %v", c, r)
		}
	}
	if cancelled != len(c.cancelled) {
		m.fault("%v has cancelled %d", c, cancelled)
	}
}

func (m *model) checkExtension(c *asked) {
	due := func(h *modelHold) bool { return h.lapsedIn > 0 }
	long := func(h *modelHold) bool { return h.lapsedIn == 0 && m.exceeds(c, h) }
	for _, variant := range m.scope(c) {
		switch {
		case c.err == nil:
			for _, h := range m.holds {
				if h.cart == c.call.CartID && h.variant == variant && h.lapsedIn > 0 && h.heldAt(c.step.place) {
					m.fault("%v, although %v is due", c, h)
				}
			}
		case errors.Is(c.err, inventory.ErrHoldExpired):
			if m.sometime(c, variant, due) {
				return
			}
		case errors.Is(c.err, reservations.ErrLifetimeExceeded):
			if m.sometime(c, variant, long) {
				return
			}
		case errors.Is(c.err, inventory.ErrCartEmpty):
			_, until := m.window(c, variant)
			if !m.gap(c, variant, until) {
				m.fault("%v, and some %s is held", c, variant)
			}
		}
	}
	if c.err != nil && !errors.Is(c.err, inventory.ErrCartEmpty) {
		m.fault("%v, and no hold is in that state", c)
	}
}

// checkKey compares the answers to calls with the same key: one of them is
// made, and the others receive the same answer.
func (m *model) checkKey(c *asked) {
	if c.call.Key == "" {
		return
	}
	alike := false
	for _, other := range m.calls {
		if other == c || other.call == nil || other.call.Key != c.call.Key || other.err != nil || other.replayed != "" {
			continue
		}
		switch {
		case c.replayed == "" && c.err == nil:
			m.fault("%v and %v were both made", c, other)
		case c.replayed == "" && other.ended < c.begun:
			m.fault("%v was made before %v", other, c)
		}
		alike = alike || other.begun < c.ended && bodyOf(other.changed) == c.replayed
	}
	if c.replayed != "" && !alike {
		m.fault("%v, and no call received that answer", c)
	}
}
