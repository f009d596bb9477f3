package inventory

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Action is a verb that finishes at once.
type Action int

// The verbs of a cart and of one hold. See CheckoutTx, ReleaseCartTx, ExtendCartTx, CommitTx, ReleaseTx and ExtendTx.
const (
	CheckoutCart Action = iota + 1
	ReleaseCart
	ExtendCart
	CommitHold
	ReleaseHold
	ExtendHold
)

// ofCart reports whether the verb works on all that a cart holds, of one variant or of all.
func (a Action) ofCart() bool { return a <= ExtendCart }

// extends reports whether the verb moves deadlines.
func (a Action) extends() bool { return a == ExtendCart || a == ExtendHold }

// Call is one call of a verb.
type Call struct {
	Action   Action
	TenantID uuid.UUID
	// CartID names the cart, and VariantID for ReleaseCart the variant, "" for all; ReservationID names the hold.
	CartID, VariantID string
	ReservationID     uuid.UUID
	// Reason is why something is released.
	Reason reservations.ReleaseReason
	// By is how much longer something is held, at most to LifetimeMax after it was first held.
	By, LifetimeMax time.Duration
	Origin          audit.Origin
}

// Validate refuses a call that can't be decided, with an *InvalidError.
func (c *Call) Validate() error {
	switch {
	case c.Action < CheckoutCart || c.Action > ExtendHold:
		return &InvalidError{Field: "action", Message: "is not known"}
	case c.Action == ReleaseCart || c.Action == ReleaseHold:
		return ValidateReason(c.Reason)
	case c.Action.extends():
		return validateBy(c.By)
	}
	return nil
}

// Result is what came of a call.
type Result struct {
	// Reservations are what was committed, released or extended, as they are now.
	Reservations []reservations.Reservation
	// Err is the error of the verb. Its transaction may be committed nevertheless: see ReleaseTx.
	Err error
}

// Group applies calls in one transaction, set-wise: it reads which holds they are about (QueueNeeds), locks the stocks
// (QueueStocks) and then the holds (QueueHolds), decides each call under the locks (Decide), and writes all of it
// (QueueWrites). The calls are valid, and none works on what another one of them works on: see Meets.
//
// The transaction must be READ COMMITTED for the verbs of carts.
type Group struct {
	calls []Call
	needs [][]reservationrows.Named // of each call, in the order of the calls
	out   []bool                    // calls that are left out
	stocks
	held []reservations.Reservation
	lost map[reservationrows.Holder]string

	ended    map[endingKey][]reservationrows.Ref
	extended []reservations.Reservation
	moves    map[Ref]move
	dismiss  []reservationrows.Line
	entries  []audit.Entry
}

// endingKey tells the endings of a group apart: all are at one time.
type endingKey struct {
	to     reservations.Status
	reason reservations.ReleaseReason
}

// NewGroup makes a group of calls.
func NewGroup(calls []Call) *Group {
	return &Group{calls: calls, needs: make([][]reservationrows.Named, len(calls)), out: make([]bool, len(calls))}
}

// LeaveOut takes a call out of what is locked, decided and written from now on.
func (g *Group) LeaveOut(place int) { g.out[place] = true }

// QueueNeeds adds to b what reads which holds the calls are about, at most limit for a cart.
func (g *Group) QueueNeeds(b *pgx.Batch, limit int) {
	var lines []reservationrows.Line
	var refs []reservationrows.Ref
	var ofLine, ofRef []int // places of the calls
	for i := range g.calls {
		c := &g.calls[i]
		if c.Action.ofCart() {
			lines = append(lines, reservationrows.Line{TenantID: c.TenantID, HolderID: c.CartID, ResourceKey: c.VariantID})
			ofLine = append(ofLine, i)
		} else {
			refs = append(refs, reservationrows.Ref{TenantID: c.TenantID, ReservationID: c.ReservationID})
			ofRef = append(ofRef, i)
		}
	}
	if len(lines) > 0 {
		reservationrows.QueueHeldOf(b, Kind, lines, limit, func(place int, n reservationrows.Named) {
			g.needs[ofLine[place]] = append(g.needs[ofLine[place]], n)
		})
	}
	if len(refs) > 0 {
		reservationrows.QueueNamed(b, Kind, refs, func(place int, n reservationrows.Named) {
			g.needs[ofRef[place]] = append(g.needs[ofRef[place]], n)
		})
	}
}

// Holds is how many holds the call is about.
func (g *Group) Holds(place int) int { return len(g.needs[place]) }

// Variants are the variants of the holds that the call is about, once for each hold.
func (g *Group) Variants(place int) []Ref {
	refs := make([]Ref, len(g.needs[place]))
	for i, n := range g.needs[place] {
		refs[i] = Ref{n.TenantID, n.ResourceKey}
	}
	return refs
}

// Meets reports whether the call may work on the same holds as one that is before it in the group and not left out: two
// calls of one hold, or a call of a cart and any other of the same cart.
func (g *Group) Meets(place int) bool {
	c := &g.calls[place]
	for i := range place {
		if other := &g.calls[i]; !g.out[i] && other.TenantID == c.TenantID && g.meet(i, place) {
			return true
		}
	}
	return false
}

func (g *Group) meet(i, j int) bool {
	a, b := &g.calls[i], &g.calls[j]
	if a.Action.ofCart() || b.Action.ofCart() {
		return g.holder(i) == g.holder(j)
	}
	return a.ReservationID == b.ReservationID
}

// holder is whose holds the call is about, "" for a hold that does not exist.
func (g *Group) holder(place int) string {
	if c := &g.calls[place]; c.Action.ofCart() {
		return c.CartID
	}
	for _, n := range g.needs[place] {
		return n.HolderID
	}
	return ""
}

// Needs are the distinct variants of the holds that the calls are about.
func (g *Group) Needs() (refs []Ref) {
	seen := make(map[Ref]bool)
	for i := range g.calls {
		if g.out[i] {
			continue
		}
		for _, n := range g.needs[i] {
			if ref := (Ref{n.TenantID, n.ResourceKey}); !seen[ref] {
				seen[ref] = true
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// QueueStocks adds to b what locks the stocks that the calls need and that are free, in (tenant, variant) order. With wait,
// the stock of that variant is waited for first, while no other is locked.
func (g *Group) QueueStocks(b *pgx.Batch, wait *Ref) {
	if wait != nil {
		var waited stocks
		waited.queue(b, lockSQL, []Ref{*wait}, nil)
	}
	g.stocks.queue(b, lockFreeSQL, g.Needs(), nil)
}

// HasStock reports whether QueueStocks has locked the variant's stock.
func (g *Group) HasStock(variant Ref) bool { return g.counters[variant] != nil }

// Unlocked returns the variants of the call whose stocks QueueStocks has not locked.
func (g *Group) Unlocked(place int) (refs []Ref) {
	for _, n := range g.needs[place] {
		if ref := (Ref{n.TenantID, n.ResourceKey}); g.counters[ref] == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

// QueueHolds adds to b what locks the holds, behind their stocks, and reads all that the decisions need.
func (g *Group) QueueHolds(b *pgx.Batch) {
	var refs []reservationrows.Ref
	var lines []reservationrows.Line
	var checkouts []reservationrows.Holder
	for i := range g.calls {
		c := &g.calls[i]
		if g.out[i] {
			continue
		}
		if c.Action == CheckoutCart {
			checkouts = append(checkouts, reservationrows.Holder{TenantID: c.TenantID, HolderID: c.CartID})
		}
		if !c.Action.ofCart() {
			for _, n := range g.needs[i] {
				refs = append(refs, n.Ref)
			}
			continue
		}
		seen := make(map[string]bool)
		for _, n := range g.needs[i] {
			if !seen[n.ResourceKey] {
				seen[n.ResourceKey] = true
				lines = append(lines, reservationrows.Line{TenantID: n.TenantID, HolderID: n.HolderID, ResourceKey: n.ResourceKey})
			}
		}
	}
	if len(refs)+len(lines) > 0 {
		reservationrows.QueueLock(b, Kind, refs, lines, func(locked []reservations.Reservation) { g.held = locked })
	}
	b.Queue(clockSQL).QueryRow(func(row pgx.Row) error { return row.Scan(&g.now) })
	if len(checkouts) > 0 {
		g.lost = make(map[reservationrows.Holder]string)
		reservationrows.QueueLost(b, Kind, checkouts, func(place int, key string) { g.lost[checkouts[place]] = key })
	}
}

// applyTx applies one call in the caller's transaction. first adds statements ahead of the others.
func applyTx(ctx context.Context, tx pgx.Tx, c Call, first ...func(*pgx.Batch)) ([]reservations.Reservation, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	g := NewGroup([]Call{c})
	b := &pgx.Batch{}
	for _, queue := range first {
		queue(b)
	}
	g.QueueNeeds(b, reservationrows.HeldMax+1)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read what is held: %w", err)
	}
	if g.Holds(0) > reservationrows.HeldMax {
		return nil, fmt.Errorf("cart %s holds more than %d reservations", c.CartID, reservationrows.HeldMax)
	}
	b = &pgx.Batch{}
	g.stocks.queue(b, lockSQL, g.Needs(), nil)
	g.QueueHolds(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("lock what is held: %w", err)
	}
	result := g.Decide()[0]
	b = &pgx.Batch{}
	if g.QueueWrites(b); b.Len() > 0 {
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return nil, fmt.Errorf("write what was decided: %w", err)
		}
	}
	return result.Reservations, result.Err
}
