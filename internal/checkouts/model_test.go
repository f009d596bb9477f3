package checkouts_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// The model is a shop in memory, with plain values. Time is the number of the
// step.

type modelHold struct {
	id         uuid.UUID
	cart, item string
	status     reservations.Status
	heldAt     int
	lapsedAt   int // 0: not yet
	dismissed  bool
	in         *modelCheckout // nil: none
}

func (h *modelHold) live() bool { return h.status == reservations.Held && h.lapsedAt == 0 }
func (h *modelHold) due() bool  { return h.status == reservations.Held && h.lapsedAt > 0 }

type modelCheckout struct {
	id     uuid.UUID
	cart   string
	late   bool
	status checkouts.Status
	reason checkouts.Reason
	alert  checkouts.Alert
	holds  []*modelHold
}

// machine runs the same steps on the model and on the real shop.
type machine struct {
	*fixture
	rt        *rapid.T
	step      int
	holds     []*modelHold
	checkouts []*modelCheckout
}

// release releases what is live, and expires what is due.
func (m *machine) release(holds []*modelHold) {
	for _, h := range holds {
		switch {
		case h.due():
			h.status = reservations.Expired
		case h.live():
			h.status = reservations.Released
		}
	}
}

func (m *machine) of(cart string) (holds []*modelHold) {
	for _, h := range m.holds {
		if h.cart == cart {
			holds = append(holds, h)
		}
	}
	return holds
}

// cannot is the error of a checkout of the cart, nil if it can begin.
func (m *machine) cannot(cart string) error {
	live, locked, unseen := false, false, false
	for _, h := range m.of(cart) {
		live = live || h.live()
		locked = locked || h.live() && h.in != nil
		gone := (h.due() || h.status == reservations.Expired) && !h.dismissed
		again := slices.ContainsFunc(m.holds, func(o *modelHold) bool { return o.cart == cart && o.item == h.item && o.heldAt > h.lapsedAt })
		unseen = unseen || gone && !again
	}
	unfinished := slices.ContainsFunc(m.checkouts, func(c *modelCheckout) bool { return c.cart == cart && !c.status.Ended() })
	switch {
	case locked:
		return checkouts.ErrCheckoutInProgress
	case unseen:
		return checkouts.ErrHoldExpired
	case !live:
		return checkouts.ErrCartEmpty
	case unfinished:
		return checkouts.ErrCheckoutInProgress
	}
	return nil
}

// paid records that a checkout is paid.
func (m *machine) paid(c *modelCheckout) {
	switch {
	case c.status == checkouts.Validating && !c.late:
		c.status = checkouts.Finalizing
	case c.status == checkouts.Validating:
		m.compensate(c, checkouts.PaymentTimeout)
		c.alert = checkouts.PaidTooLate
	case c.status.Ended() && c.status != checkouts.Committed && c.alert == "":
		c.alert = checkouts.PaidTooLate
	}
}

func (m *machine) compensate(c *modelCheckout, reason checkouts.Reason) {
	m.release(c.holds)
	c.status, c.reason = checkouts.Compensated, reason
}

func (m *machine) finalize(c *modelCheckout) {
	if c.status != checkouts.Finalizing {
		return
	}
	if slices.ContainsFunc(c.holds, func(h *modelHold) bool { return !h.live() }) {
		m.release(c.holds)
		c.status, c.reason, c.alert = checkouts.Failed, checkouts.LostStock, checkouts.StockLost
		return
	}
	for _, h := range c.holds {
		h.status = reservations.Committed
	}
	c.status = checkouts.Committed
}

// The steps.

func (m *machine) cart() string { return rapid.SampledFrom([]string{"a", "b"}).Draw(m.rt, "cart") }

// pick returns one of the checkouts, nil without any.
func (m *machine) pick() *modelCheckout {
	if len(m.checkouts) == 0 {
		return nil
	}
	return rapid.SampledFrom(m.checkouts).Draw(m.rt, "checkout")
}

func (m *machine) add(*rapid.T) {
	h := &modelHold{cart: m.cart(), item: rapid.SampledFrom([]string{"hall", "shirt"}).Draw(m.rt, "item"), status: reservations.Held, heldAt: m.step}
	var outcome inventory.Outcome
	var err error
	h.id, outcome, err = m.tryHold(m.TB.Context(), h.cart, h.item, rapid.Int64Range(1, 3).Draw(m.rt, "quantity"))
	if err != nil || outcome != inventory.Granted {
		m.rt.Fatalf("hold: %s, %v", outcome, err)
	}
	m.holds = append(m.holds, h)
	for _, other := range m.holds { // a hold of a block expires all that is due, and others what they need
		if other.due() && other.item == h.item && m.status(other.id) == reservations.Expired {
			other.status = reservations.Expired
		}
	}
}

func (m *machine) status(id uuid.UUID) (status reservations.Status) {
	if err := m.DB.QueryRow(m.TB.Context(), `SELECT status FROM reservations WHERE reservation_id = $1`, id).Scan(&status); err != nil {
		m.rt.Fatal(err)
	}
	return status
}

func (m *machine) beginOne(*rapid.T) {
	cart := m.cart()
	want := m.cannot(cart)
	c, err := checkouts.Begin(m.TB.Context(), m.DB, m.start(cart), m.config)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		m.rt.Fatalf("begin of %s: %v, the model wants %v", cart, err, want)
	}
	if err != nil {
		return
	}
	made := &modelCheckout{id: c.CheckoutID, cart: cart, status: checkouts.Validating}
	for _, h := range m.of(cart) {
		if h.live() {
			h.in = made
			made.holds = append(made.holds, h)
		}
	}
	m.checkouts = append(m.checkouts, made)
}

func (m *machine) pay(*rapid.T) {
	c := m.pick()
	if c == nil {
		return
	}
	fits := c.status == checkouts.Validating && !c.late || c.status == checkouts.Finalizing
	m.paid(c)
	m.finalize(c)
	m.check(c, fits && c.status == checkouts.Committed, checkouts.ResultPaid)
}

func (m *machine) refuse(*rapid.T) {
	c := m.pick()
	if c == nil {
		return
	}
	fits := c.status == checkouts.Validating
	if fits {
		m.compensate(c, checkouts.PaymentFailed)
	}
	m.check(c, fits, checkouts.ResultFailed)
}

// check answers, and compares what is returned.
func (m *machine) check(c *modelCheckout, fits bool, result checkouts.Result) {
	got, err := m.fixture.answer(c.id, result)
	conflict, ok := errors.AsType[*checkouts.ConflictError](err)
	if err != nil && !ok || ok == fits || ok && conflict.Status != c.status || got.Status != c.status {
		m.rt.Fatalf("%s of a checkout: %s, %v, the model has %s, agrees %t", result, got.Status, err, c.status, fits)
	}
}

// record is the first transaction of an answer, after which the process dies.
func (m *machine) record(*rapid.T) {
	if c := m.pick(); c != nil {
		m.paid(c)
		m.recordPaid(checkouts.Checkout{CheckoutID: c.id})
	}
}

func (m *machine) pass(*rapid.T) {
	if c := m.pick(); c != nil && c.status == checkouts.Validating {
		c.late = true
		m.late(c.id)
	}
}

func (m *machine) lapseOne(*rapid.T) {
	if len(m.holds) == 0 {
		return
	}
	if h := rapid.SampledFrom(m.holds).Draw(m.rt, "hold"); h.live() {
		h.lapsedAt = m.step
		m.Exec(`UPDATE reservations SET expires_at = clock_timestamp() WHERE reservation_id = $1`, h.id)
	}
}

func (m *machine) expire(*rapid.T) {
	m.sweep()
	for _, h := range m.holds {
		if h.due() {
			h.status = reservations.Expired
		}
	}
}

func (m *machine) recoverAll(*rapid.T) {
	m.due()
	r, err := checkouts.NewRecovery(m.DB, m.config)
	if err == nil {
		_, err = r.RunOnce(m.TB.Context())
	}
	if err != nil {
		m.rt.Fatal(err)
	}
	for _, c := range m.checkouts {
		if c.status == checkouts.Validating && c.late {
			m.compensate(c, checkouts.PaymentTimeout)
		}
		m.finalize(c)
	}
}

func (m *machine) remove(*rapid.T) {
	cart := m.cart()
	var want error
	if slices.ContainsFunc(m.of(cart), func(h *modelHold) bool { return h.live() && h.in != nil }) {
		want = reservationrows.ErrCheckoutInProgress
	}
	_, err := carts.Remove(m.TB.Context(), m.DB, m.tenant, cart, "", reservations.CartRemoved, shopper)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		m.rt.Fatalf("remove %s: %v, the model wants %v", cart, err, want)
	}
	if err == nil {
		m.release(m.of(cart))
		for _, h := range m.of(cart) {
			h.dismissed = h.dismissed || h.status == reservations.Expired
		}
	}
}

func (m *machine) checkOut(*rapid.T) {
	cart := m.cart()
	want := m.cannot(cart)
	unfinished := errors.Is(want, checkouts.ErrCheckoutInProgress) &&
		!slices.ContainsFunc(m.of(cart), func(h *modelHold) bool { return h.live() && h.in != nil })
	if unfinished { // its holds are lost, and the cart's newer holds are free
		want = nil
	}
	_, err := carts.Checkout(m.TB.Context(), m.DB, m.tenant, cart, shopper)
	if !errors.Is(err, want) || (err == nil) != (want == nil) {
		m.rt.Fatalf("checkout of %s: %v, the model wants %v", cart, err, want)
	}
	for _, h := range m.of(cart) {
		if err == nil && h.live() {
			h.status = reservations.Committed
		}
	}
}

// agree fails unless the rows are as the model has them.
func (m *machine) agree(*rapid.T) {
	m.step++
	for _, c := range m.checkouts {
		got, err := checkouts.Get(m.TB.Context(), m.DB, m.tenant, c.id)
		if err != nil || got.Status != c.status || got.Reason != c.reason || got.Alert != c.alert || int(got.Holds) != len(c.holds) {
			m.rt.Fatalf("checkout of %s is %s %q %q, %v; the model has %s %q %q", c.cart, got.Status, got.Reason, got.Alert, err, c.status, c.reason, c.alert)
		}
	}
	rows, err := m.DB.Query(m.TB.Context(), `SELECT reservation_id::text || ' ' || status FROM reservations WHERE tenant_id = $1`, m.tenant)
	if err != nil {
		m.rt.Fatal(err)
	}
	stored, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(stored) != len(m.holds) {
		m.rt.Fatalf("%d holds, %v, the model has %d", len(stored), err, len(m.holds))
	}
	for _, h := range m.holds {
		if !slices.Contains(stored, fmt.Sprint(h.id, " ", h.status)) {
			m.rt.Fatalf("the hold of %s by cart %s: %v, the model has %s", h.item, h.cart, stored, h.status)
		}
	}
	for name, sql := range faults {
		if n := pgtest.Int(m.TB, m.DB, sql); n != 0 {
			m.rt.Fatalf("%d %s", n, name)
		}
	}
}

func newMachine(t *testing.T, rt *rapid.T, db *pgxpool.Pool) *machine {
	m := &machine{fixture: shopOn(t, db), rt: rt, step: 1}
	for _, table := range []string{"checkouts", "reservations", "postings", "inventory_stocks", "audit_log"} {
		m.Exec(`DELETE FROM ` + table)
	}
	m.seats("hall", 300)
	m.stock("shirt", 300)
	return m
}

// Random steps on checkouts of two carts agree with the model after each step.
func TestModel(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pgtest.Exec(t, db, fmt.Sprintf(`ALTER DATABASE %q SET synchronous_commit = off`, db.Config().ConnConfig.Database))
	db.Reset()
	rapid.Check(t, pgtest.Fewer(func(rt *rapid.T) {
		m := newMachine(t, rt, db)
		rt.Repeat(map[string]func(*rapid.T){
			"add": m.add, "begin": m.beginOne, "begin again": m.beginOne, "pay": m.pay, "refuse": m.refuse, "record": m.record,
			"deadline": m.pass, "lapse": m.lapseOne, "expire": m.expire, "recover": m.recoverAll, "remove": m.remove, "check out": m.checkOut,
			"": m.agree,
		})
	}))
}
