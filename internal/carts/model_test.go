package carts_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// model is a shop in memory: plain values, one step at a time. It repeats the
// calls of concurrent callers in the order of the record, and compares each
// answer with its own. See TestModel.

const (
	modelTTL         = time.Hour
	modelLifetimeMax = 2 * time.Hour
)

type modelStock struct {
	stock      int64
	backorder  bool
	maxPerCart int64 // 0: no limit
}

// never is the place of an event that is not in the record.
const never = math.MaxInt

type modelHold struct {
	id             uuid.UUID
	cart, variant  string
	quantity       int64
	status         reservations.Status
	reason         reservations.ReleaseReason
	first, expires time.Time
	dismissed      bool

	heldIn, lapsedIn int // the rounds in which it was made and after which it was due, 0 for not yet
	made, ended      int // places in the record of the round, 0 for before the round
}

func (h *modelHold) String() string {
	if h == nil {
		return "unknown"
	}
	return fmt.Sprintf("hold %s of cart %s: %d × %s, %s %s, due after round %d, from place %d to %d", h.id, h.cart, h.quantity, h.variant, h.status, h.reason, h.lapsedIn, h.made, h.ended)
}

func (h *modelHold) live() bool { return h.status == reservations.Held && h.lapsedIn == 0 }
func (h *modelHold) due() bool  { return h.status == reservations.Held && h.lapsedIn > 0 }

// heldAt reports whether it was held, due or not, after the steps up to the
// place.
func (h *modelHold) heldAt(place int) bool { return h.made <= place && place < h.ended }

type modelRequest struct {
	id            uuid.UUID
	kind          requests.Kind
	cart, variant string
	quantity      int64
	status        requests.Status
	reason        requests.Reason
	sequence      int64

	asked       *asked // its call; nil for an earlier round
	finished    int    // the place in the record, 0 for before the round
	cancelledBy *asked
}

func (r *modelRequest) String() string {
	if r == nil {
		return "unknown"
	}
	return fmt.Sprintf("request %s of cart %s: %s %d × %s, %s %s, finished at place %d", r.id, r.cart, r.kind, r.quantity, r.variant, r.status, r.reason, r.finished)
}

// cartVariant is a variant in a cart.
type cartVariant struct{ cart, variant string }

// asked is a call with its answer: a submission or a verb.
type asked struct {
	number       string // its correlation id
	begun, ended int64  // readings of a clock that counts the beginnings and ends of calls
	submission   *requestrows.Submission
	call         *carts.Call
	single       bool // made in a separate transaction

	view      requests.View
	changed   []reservations.Reservation
	cancelled []uuid.UUID
	replayed  string // the answer that was stored under the key
	err       error

	step *step // the step in which it changed something, or nil
}

func (c *asked) String() string {
	if c == nil {
		return "no call"
	}
	name := fmt.Sprintf("%s [%d, %d]", c.number, c.begun, c.ended)
	if s := c.submission; s != nil {
		return fmt.Sprintf("%s: %s %d × %s to cart %s (%s): %s %s", name, s.Kind, s.Quantity, s.VariantID, s.CartID, s.RequestID, c.view.Status, c.view.Reason)
	}
	v := c.call
	about := fmt.Sprintf("cart %s %s", v.CartID, v.VariantID)
	if v.CartID == "" {
		about = v.ReservationID.String()
	}
	changed := make([]string, len(c.changed))
	for i := range c.changed {
		changed[i] = c.changed[i].ReservationID.String()
	}
	return fmt.Sprintf("%s: %s %s (single: %t, key %q): %v, cancelled %v, replayed %q, error %v", name, actionNames[v.Action], about, c.single, v.Key, changed, c.cancelled, c.replayed, c.err)
}

var actionNames = map[inventory.Action]string{
	inventory.CheckoutCart: "check out", inventory.ReleaseCart: "remove", inventory.ExtendCart: "extend",
	inventory.CommitHold: "commit", inventory.ReleaseHold: "release", inventory.ExtendHold: "extend",
}

// eventOf returns the event of each reservation that a call of the action
// changes.
func eventOf(action inventory.Action) string {
	switch action {
	case inventory.CheckoutCart, inventory.CommitHold:
		return reservationrows.EventCommitted
	case inventory.ReleaseCart, inventory.ReleaseHold:
		return reservationrows.EventReleased
	case inventory.ExtendCart, inventory.ExtendHold:
	}
	return reservationrows.EventExtended
}

// entry is a row of the record of a reservation or a request.
type entry struct {
	AuditID     int64
	Transaction int64
	Target      uuid.UUID
	Action      string
	Correlation string
	Reason      string // of a request that failed, or of a release
	ExpiresAt   *time.Time
}

// step is the entries of one transaction. The requests that a removal cancels
// are a separate step, because they are recorded before the locks.
type step struct {
	place   int
	entries []entry
	// stocks are the variants that the transaction had locked, as far as the
	// record shows.
	stocks map[string]bool
}

type model struct {
	round    int
	stocks   map[string]*modelStock
	holds    map[uuid.UUID]*modelHold
	requests map[uuid.UUID]*modelRequest

	// Fields of the current round:
	calls    []*asked
	byNumber map[string]*asked
	steps    []*step
	lost     map[cartVariant]bool // the unseen expiries of the carts at the beginning of the round
	faults   []string
}

func newModel() *model {
	return &model{stocks: map[string]*modelStock{}, holds: map[uuid.UUID]*modelHold{}, requests: map[uuid.UUID]*modelRequest{}}
}

func (m *model) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

// begin begins a round. No call is running.
func (m *model) begin() {
	m.round++
	m.calls, m.byNumber, m.steps, m.faults = nil, map[string]*asked{}, nil, nil
	for _, h := range m.holds {
		h.made, h.ended = 0, 0
		if h.status == reservations.Held {
			h.ended = never
		}
	}
	for _, r := range m.requests {
		r.asked, r.cancelledBy, r.finished = nil, nil, 0
		if r.status == requests.Queued {
			r.finished = never
		}
	}
	m.lost = map[cartVariant]bool{}
	for _, h := range m.holds {
		gone := h.due() || h.status == reservations.Expired && !h.dismissed
		if gone && !m.heldAgain(h) {
			m.lost[cartVariant{h.cart, h.variant}] = true
		}
	}
}

func (m *model) heldAgain(lost *modelHold) bool {
	for _, h := range m.holds {
		if h.cart == lost.cart && h.variant == lost.variant && h.heldIn > lost.lapsedIn {
			return true
		}
	}
	return false
}

// addCall adds a call of the round, with its answer.
func (m *model) addCall(c *asked) {
	m.calls = append(m.calls, c)
	m.byNumber[c.number] = c
	if s := c.submission; s != nil {
		m.requests[s.RequestID] = &modelRequest{
			id: s.RequestID, kind: s.Kind, cart: s.CartID, variant: s.VariantID, quantity: int64(s.Quantity), status: requests.Queued,
			asked: c, finished: never,
		}
	}
}

func (m *model) reserved(variant string) (units int64) {
	for _, h := range m.holds {
		if h.variant == variant && h.status == reservations.Held {
			units += h.quantity
		}
	}
	return units
}

func (m *model) dueOf(variant string) (units int64) {
	for _, h := range m.holds {
		if h.variant == variant && h.due() {
			units += h.quantity
		}
	}
	return units
}

func (m *model) liveOf(cart, variant string) (live []*modelHold) {
	for _, h := range m.holds {
		if h.cart == cart && h.variant == variant && h.live() {
			live = append(live, h)
		}
	}
	return live
}

// stepsOf groups the entries by transaction. If a transaction waited for
// another one, all its entries come after the other's, because it drew its
// audit ids under its locks.
func stepsOf(entries []entry) (steps []*step) {
	type key struct {
		transaction int64
		cancels     bool
	}
	byKey := map[key]*step{}
	for _, e := range entries {
		k := key{e.Transaction, isCancel(e)}
		s := byKey[k]
		if s == nil {
			s = &step{place: len(steps) + 1, stocks: map[string]bool{}}
			byKey[k] = s
			steps = append(steps, s)
		}
		s.entries = append(s.entries, e)
	}
	return steps
}

const requestFailed = "request.failed"

func isCancel(e entry) bool {
	return e.Action == requestFailed && e.Reason == string(requests.Cancelled)
}

// made is the stored rows of a request and of its hold.
type made struct {
	RequestID uuid.UUID
	Sequence  int64
	First     *time.Time
	HeldAt    *time.Time
}

// replay repeats the round in the order of the record.
func (m *model) replay(entries []entry, facts map[uuid.UUID]made) {
	m.steps = stepsOf(entries)
	for _, s := range m.steps {
		m.apply(s, facts)
	}
	for _, c := range m.calls {
		if c.submission != nil {
			m.checkSubmitted(c)
		} else {
			m.checkAnswer(c)
		}
	}
	for _, c := range m.calls {
		if c.call != nil && c.call.Action == inventory.ReleaseCart {
			m.acknowledge(c)
		}
	}
}

// acknowledge removes the unseen expiries of the variants that the cart
// removed.
func (m *model) acknowledge(c *asked) {
	for _, h := range m.holds {
		inScope := h.cart == c.call.CartID && (c.call.VariantID == "" || h.variant == c.call.VariantID)
		if inScope && h.status == reservations.Expired {
			h.dismissed = true
		}
	}
}

// apply repeats a step: first its expiries, then requests in the order of their
// admission, then verbs.
func (m *model) apply(s *step, facts map[uuid.UUID]made) {
	var decided []entry
	replaced := map[string][]uuid.UUID{}
	changed := map[string][]entry{}
	var numbers []string
	for _, e := range s.entries {
		c := m.byNumber[e.Correlation]
		switch {
		case e.Action == reservationrows.EventExpired:
			m.expire(s, e)
		case isCancel(e):
			m.cancel(s, e, c)
		case e.Action == reservationrows.EventHeld, e.Action == requestFailed:
			decided = append(decided, e)
		case e.Action == reservationrows.EventReleased && e.Reason == string(reservationrows.Replaced):
			replaced[e.Correlation] = append(replaced[e.Correlation], e.Target)
		case c == nil || c.call == nil:
			m.fault("%s of %s for %q, which is not a verb of the round", e.Action, e.Target, e.Correlation)
		default:
			if changed[c.number] == nil {
				numbers = append(numbers, c.number)
			}
			changed[c.number] = append(changed[c.number], e)
		}
	}
	slices.SortFunc(decided, func(a, b entry) int { return int(facts[a.Target].Sequence - facts[b.Target].Sequence) })
	for _, e := range decided {
		m.decide(s, e, replaced[e.Correlation], facts[e.Target])
		delete(replaced, e.Correlation)
	}
	for number := range replaced {
		m.fault("%q replaced %v, but made no hold", number, replaced[number])
	}
	for _, number := range numbers {
		m.change(s, m.byNumber[number], changed[number])
	}
	for variant := range s.stocks {
		if v := m.stocks[variant]; !v.backorder && m.reserved(variant) > v.stock {
			m.fault("%s: %d of %d are reserved after step %d", variant, m.reserved(variant), v.stock, s.place)
		}
	}
}

func (m *model) expire(s *step, e entry) {
	h := m.holds[e.Target]
	if h == nil || !h.due() {
		m.fault("%s was expired, and is %v", e.Target, h)
		return
	}
	h.status, h.reason, h.ended = reservations.Expired, reservationrows.TTL, s.place
	s.stocks[h.variant] = true
}

func (m *model) cancel(s *step, e entry, c *asked) {
	r := m.requests[e.Target]
	if r == nil || r.status != requests.Queued || c == nil || c.call == nil || c.call.Action != inventory.ReleaseCart {
		m.fault("%s was cancelled by %v, and is %v", e.Target, c, r)
		return
	}
	if r.cart != c.call.CartID || c.call.VariantID != "" && r.variant != c.call.VariantID {
		m.fault("%v cancelled %v", c, r)
	}
	r.status, r.reason, r.finished, r.cancelledBy = requests.Failed, requests.Cancelled, s.place, c
}

// decide decides a request, and compares the outcome.
func (m *model) decide(s *step, e entry, replaced []uuid.UUID, fact made) {
	r := m.requests[e.Target]
	if r == nil || r.status != requests.Queued {
		m.fault("%s was decided, and is %v", e.Target, r)
		return
	}
	s.stocks[r.variant] = true
	stock, mine := m.stocks[r.variant], m.liveOf(r.cart, r.variant)
	var own int64
	for _, h := range mine {
		own += h.quantity
	}
	inCart := own + r.quantity
	free := stock.stock - m.reserved(r.variant) + m.dueOf(r.variant)
	if r.kind == requests.Set {
		inCart = r.quantity
		free += own
	}
	want := requests.Reason("")
	switch {
	case stock.maxPerCart > 0 && inCart > stock.maxPerCart:
		want = requests.LimitExceeded
	case !stock.backorder && free < r.quantity:
		want = requests.OutOfStock
	}
	got := requests.Reason(e.Reason)
	if e.Action == reservationrows.EventHeld {
		got = ""
	}
	if got != want {
		m.fault("%v: %q, the model's reason is %q with %d free and %d in the cart", r, got, want, free, inCart)
	}
	r.reason, r.finished, r.sequence = got, s.place, fact.Sequence
	if r.asked != nil {
		r.asked.step = s
	}
	if got != "" {
		r.status = requests.Failed
		return
	}
	r.status = requests.Done
	if r.kind != requests.Set {
		mine = nil
	}
	m.hold(s, r, e, mine, replaced, fact)
}

// hold makes the hold of a request, which replaces the given holds.
func (m *model) hold(s *step, r *modelRequest, e entry, mine []*modelHold, replaced []uuid.UUID, fact made) {
	if fact.First == nil || fact.HeldAt == nil || e.ExpiresAt == nil {
		m.fault("%s is done, and has no reservation", r.id)
		return
	}
	h := &modelHold{
		id: r.id, cart: r.cart, variant: r.variant, quantity: r.quantity, status: reservations.Held, heldIn: m.round,
		first: *fact.HeldAt, made: s.place, ended: never,
	}
	ids := make([]uuid.UUID, len(mine))
	for i, old := range mine {
		ids[i] = old.id
		if old.first.Before(h.first) {
			h.first = old.first
		}
		old.status, old.reason, old.ended = reservations.Released, reservationrows.Replaced, s.place
	}
	h.expires = fact.HeldAt.Add(modelTTL)
	if latest := h.first.Add(modelLifetimeMax); latest.Before(h.expires) {
		h.expires = latest
	}
	if !sameIDs(ids, replaced) {
		m.fault("%s replaced %v, the model %v", r.id, replaced, ids)
	}
	if !h.first.Equal(*fact.First) || !h.expires.Equal(*e.ExpiresAt) {
		m.fault("%s is held since %s until %s, in the model since %s until %s", r.id, fact.First, e.ExpiresAt, h.first, h.expires)
	}
	m.holds[h.id] = h
}

// change repeats the changes of a verb, and compares its answer.
func (m *model) change(s *step, c *asked, entries []entry) {
	if c.step != nil {
		m.fault("%v was made twice", c)
	}
	c.step = s
	if c.err != nil || c.replayed != "" {
		m.fault("%v changed %d reservations", c, len(entries))
	}
	targets := map[uuid.UUID]bool{}
	for _, e := range entries {
		targets[e.Target] = true
	}
	m.checkTargets(s, c, targets)
	for _, e := range entries {
		h := m.holds[e.Target]
		if h == nil || !h.live() || e.Action != eventOf(c.call.Action) {
			m.fault("%v: %s of %v", c, e.Action, h)
			continue
		}
		switch e.Action {
		case reservationrows.EventExtended:
			h.expires = h.expires.Add(c.call.By)
			if h.expires.After(h.first.Add(modelLifetimeMax)) {
				m.fault("%v: %s lasts too long", c, h.id)
			}
			continue
		case reservationrows.EventCommitted:
			h.status, h.ended = reservations.Committed, s.place
			m.stocks[h.variant].stock -= h.quantity
		default:
			h.status, h.reason, h.ended = reservations.Released, c.call.Reason, s.place
		}
		s.stocks[h.variant] = true
	}
	m.compare(c, targets)
}

// checkTargets compares the reservations that a verb changed with those that it
// must change. The caller repeats the change afterwards.
func (m *model) checkTargets(s *step, c *asked, targets map[uuid.UUID]bool) {
	if !ofCart(c) {
		if len(targets) != 1 || !targets[c.call.ReservationID] {
			m.fault("%v changed %v", c, slices.Collect(maps.Keys(targets)))
		}
		return
	}
	found := 0
	for _, variant := range m.scope(c) {
		live := m.liveOf(c.call.CartID, variant)
		var left []*modelHold
		for _, h := range live {
			if !targets[h.id] {
				left = append(left, h)
			}
		}
		found += len(live) - len(left)
		switch {
		case len(left) == 0:
		case c.single && c.call.Action == inventory.ExtendCart: // it locks no stock, so it may leave out new holds
			from, _ := m.window(c, variant)
			for _, h := range left {
				if h.made <= from {
					m.fault("%v left out %v", c, h)
				}
			}
		case len(left) < len(live) || !m.gap(c, variant, s.place):
			m.fault("%v left out %v", c, left[0])
		}
	}
	if found != len(targets) {
		m.fault("%v changed %d reservations, of which %d are the cart's", c, len(targets), found)
	}
}

// compare compares the reservations of an answer with those of the model.
func (m *model) compare(c *asked, targets map[uuid.UUID]bool) {
	if len(c.changed) != len(targets) {
		m.fault("%v answered %d reservations, and changed %d", c, len(c.changed), len(targets))
	}
	for i := range c.changed {
		r := &c.changed[i]
		h := m.holds[r.ReservationID]
		if h == nil || !targets[r.ReservationID] {
			m.fault("%v answered %s, which it did not change", c, r.ReservationID)
			continue
		}
		if fault := h.unlike(r); fault != "" {
			m.fault("%v answered %s: %s", c, r.ReservationID, fault)
		}
	}
}

// unlike describes how the reservation differs from the model's.
func (h *modelHold) unlike(r *reservations.Reservation) string {
	got := fmt.Sprint(r.HolderID, r.ResourceKey, r.Quantity, r.Status, r.ReleaseReason, r.FirstHeldAt.UnixMicro(), r.ExpiresAt.UnixMicro(), r.EndedAt != nil)
	want := fmt.Sprint(h.cart, h.variant, h.quantity, h.status, h.reason, h.first.UnixMicro(), h.expires.UnixMicro(), h.status != reservations.Held)
	if got == want {
		return ""
	}
	return got + ", in the model " + want
}

func sameIDs(a, b []uuid.UUID) bool {
	order := func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) }
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, order)
	slices.SortFunc(b, order)
	return slices.Equal(a, b)
}
