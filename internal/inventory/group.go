package inventory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/postings"
	"github.com/holdfast/holdfast/reservations"
)

// Action is a verb that finishes at once.
type Action int

// The verbs of a cart and of one hold. See CheckoutTx, ReleaseCartTx,
// ExtendCartTx, CommitTx, ReleaseTx and ExtendTx.
const (
	CheckoutCart Action = iota + 1
	ReleaseCart
	ExtendCart
	CommitHold
	ReleaseHold
	ExtendHold
)

// ofCart reports whether the verb works on all that a cart holds, of one
// variant or of all.
func (a Action) ofCart() bool { return a <= ExtendCart }

// extends reports whether the verb moves deadlines.
func (a Action) extends() bool { return a == ExtendCart || a == ExtendHold }

// Call is one call of a verb.
type Call struct {
	Action   Action
	TenantID uuid.UUID
	// CartID names the cart, and VariantID for ReleaseCart the variant, "" for
	// all; ReservationID names the hold.
	CartID, VariantID string
	ReservationID     uuid.UUID
	// Reason is why something is released.
	Reason reservations.ReleaseReason
	// By is how much longer something is held, at most to LifetimeMax after it
	// was first held.
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

// Result is the result of a call.
type Result struct {
	// Reservations are those that were committed, released or extended, as they
	// are after it.
	Reservations []reservations.Reservation
	// Err is why the call was refused. It concerns this call only: the
	// transaction is committed, with the results of the other calls and the
	// expiry that a refused release records.
	Err error
}

// GroupCommit is a group commit: many calls share one transaction and its
// commit, and each is decided individually. The caller begins the transaction,
// sends the statements that these methods queue, in this order, and commits:
//
// QueueFindHolds reads the holds of the calls. QueueLockStocks locks their
// stocks, and QueueLockHolds then the holds, both without waiting. Decide decides each call under the
// locks. QueueWrites writes all results.
//
// The calls are valid, and no two of them may work on the same hold: exclude a
// call that Overlaps an earlier one.
//
// The transaction must be READ COMMITTED for the verbs of carts.
type GroupCommit struct {
	calls    []Call
	found    [][]reservationrows.Named // of each call, in the order of the calls
	excluded []bool                    // calls that are left out
	stocks
	held          []reservations.Reservation
	lockedHolds   map[reservationrows.Ref]bool       // holds that another transaction has locked,
	lockedPairs   map[reservationrows.HolderKey]bool // and their carts and variants
	checkouts     []reservationrows.Holder           // the carts to be checked out,
	expiredUnseen *[]reservationrows.ExpiredUnseen   // and those of them with an unseen expiry

	ended        map[endingKey][]reservationrows.Ref
	extended     []reservations.Reservation
	claims       map[endingKey][]postings.Claim
	deltas       map[Ref]counterDelta
	acknowledged []reservationrows.HolderKey
	entries      []audit.Entry
}

// endingKey distinguishes the endings of a group, which all have one time.
type endingKey struct {
	to     reservations.Status
	reason reservations.ReleaseReason
}

// NewGroupCommit makes the group commit of the calls.
func NewGroupCommit(calls []Call) *GroupCommit {
	return &GroupCommit{calls: calls, found: make([][]reservationrows.Named, len(calls)), excluded: make([]bool, len(calls))}
}

// Exclude excludes a call from what is locked, decided and written from now on.
func (g *GroupCommit) Exclude(place int) { g.excluded[place] = true }

// QueueFindHolds adds to b what reads the holds of the calls, at most limit for
// each call of a cart.
func (g *GroupCommit) QueueFindHolds(b *pgx.Batch, limit int) {
	var pairs []reservationrows.HolderKey
	var refs []reservationrows.Ref
	var ofPair, ofRef []int // places of the calls
	for i := range g.calls {
		c := &g.calls[i]
		if c.Action.ofCart() {
			pairs = append(pairs, reservationrows.HolderKey{TenantID: c.TenantID, HolderID: c.CartID, ResourceKey: c.VariantID})
			ofPair = append(ofPair, i)
		} else {
			refs = append(refs, reservationrows.Ref{TenantID: c.TenantID, ReservationID: c.ReservationID})
			ofRef = append(ofRef, i)
		}
	}
	if len(pairs) > 0 {
		reservationrows.QueueHeldOf(b, Kind, pairs, limit, func(place int, n reservationrows.Named) {
			g.found[ofPair[place]] = append(g.found[ofPair[place]], n)
		})
	}
	if len(refs) > 0 {
		reservationrows.QueueNamed(b, Kind, refs, func(place int, n reservationrows.Named) {
			g.found[ofRef[place]] = append(g.found[ofRef[place]], n)
		})
	}
}

// HoldCount is how many holds the call works on.
func (g *GroupCommit) HoldCount(place int) int { return len(g.found[place]) }

// Variants returns the variants of the call's holds, one for each hold.
func (g *GroupCommit) Variants(place int) []Ref {
	refs := make([]Ref, len(g.found[place]))
	for i, n := range g.found[place] {
		refs[i] = Ref{n.TenantID, n.ResourceKey}
	}
	return refs
}

// Overlaps reports whether the call may work on the same holds as an earlier
// call of the group that is not excluded. Two calls of one hold overlap, and so
// do a call of a cart and any other call of the same cart.
func (g *GroupCommit) Overlaps(place int) bool {
	c := &g.calls[place]
	for i := range place {
		if other := &g.calls[i]; !g.excluded[i] && other.TenantID == c.TenantID && g.overlap(i, place) {
			return true
		}
	}
	return false
}

func (g *GroupCommit) overlap(i, j int) bool {
	a, b := &g.calls[i], &g.calls[j]
	if a.Action.ofCart() || b.Action.ofCart() {
		return g.holder(i) == g.holder(j)
	}
	return a.ReservationID == b.ReservationID
}

// holder is the cart of the call's holds, "" for a hold that does not exist.
func (g *GroupCommit) holder(place int) string {
	if c := &g.calls[place]; c.Action.ofCart() {
		return c.CartID
	}
	for _, n := range g.found[place] {
		return n.HolderID
	}
	return ""
}

// AllVariants returns the distinct variants of the holds of all calls that are
// not excluded.
func (g *GroupCommit) AllVariants() (refs []Ref) {
	seen := make(map[Ref]bool)
	for i := range g.calls {
		if g.excluded[i] {
			continue
		}
		for _, n := range g.found[i] {
			if ref := (Ref{n.TenantID, n.ResourceKey}); !seen[ref] {
				seen[ref] = true
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

// QueueLockStocks adds to b what locks the calls' stocks that no other
// transaction has locked, in (tenant, variant) order. If wait is not nil, it
// first locks the stock of that variant and waits for it, while no other stock
// is locked.
func (g *GroupCommit) QueueLockStocks(b *pgx.Batch, wait *Ref) {
	if wait != nil {
		var waited stocks
		waited.queue(b, lockSQL, []Ref{*wait}, nil)
	}
	g.stocks.queue(b, lockUnlockedSQL, g.AllVariants(), nil)
}

// HasLocked reports whether QueueLockStocks has locked the variant's stock.
func (g *GroupCommit) HasLocked(variant Ref) bool { return g.counters[variant] != nil }

// Unlocked returns the variants of the call whose stocks QueueLockStocks has
// not locked.
func (g *GroupCommit) Unlocked(place int) (refs []Ref) {
	for _, n := range g.found[place] {
		if ref := (Ref{n.TenantID, n.ResourceKey}); g.counters[ref] == nil {
			refs = append(refs, ref)
		}
	}
	return refs
}

// QueueLockHolds adds to b what locks the holds that no other transaction has
// locked, after their stocks, and reads all that the decisions need. Exclude
// the calls of the others, which HasLockedHold reports, before Decide.
func (g *GroupCommit) QueueLockHolds(b *pgx.Batch) {
	if refs, pairs := g.holds(); len(refs)+len(pairs) > 0 {
		reservationrows.QueueTryLock(b, Kind, refs, pairs, func(locked, others []reservations.Reservation) {
			g.held = locked
			g.lockedHolds, g.lockedPairs = make(map[reservationrows.Ref]bool), make(map[reservationrows.HolderKey]bool)
			for i := range others {
				g.lockedHolds[others[i].Ref()], g.lockedPairs[reservationrows.HolderKeyOf(&others[i])] = true, true
			}
		})
	}
	g.queueRead(b)
}

// HasLockedHold reports whether another transaction has locked one of the
// call's holds.
func (g *GroupCommit) HasLockedHold(place int) bool {
	return slices.ContainsFunc(g.found[place], func(n reservationrows.Named) bool {
		if g.calls[place].Action.ofCart() {
			return g.lockedPairs[n.HolderKey()]
		}
		return g.lockedHolds[n.Ref]
	})
}

// holds returns the holds of the calls that are not excluded, by id or by cart
// and variant.
func (g *GroupCommit) holds() (refs []reservationrows.Ref, pairs []reservationrows.HolderKey) {
	for i := range g.calls {
		c := &g.calls[i]
		if g.excluded[i] {
			continue
		}
		if !c.Action.ofCart() {
			for _, n := range g.found[i] {
				refs = append(refs, n.Ref)
			}
			continue
		}
		seen := make(map[string]bool)
		for _, n := range g.found[i] {
			if !seen[n.ResourceKey] {
				seen[n.ResourceKey] = true
				pairs = append(pairs, n.HolderKey())
			}
		}
	}
	return refs, pairs
}

// queueRead adds to b what reads, under the locks, all else that the decisions
// need.
func (g *GroupCommit) queueRead(b *pgx.Batch) {
	for i := range g.calls {
		if c := &g.calls[i]; c.Action == CheckoutCart && !g.excluded[i] {
			g.checkouts = append(g.checkouts, reservationrows.Holder{TenantID: c.TenantID, HolderID: c.CartID})
		}
	}
	pg.QueueClock(b, &g.now)
	if len(g.checkouts) > 0 {
		g.expiredUnseen = reservationrows.QueueExpiredUnseen(b, Kind, g.checkouts)
	}
}

// lockOneTx locks what one call works on, as holdLock does. first adds
// statements before all others.
func lockOneTx(ctx context.Context, tx pgx.Tx, c Call, first ...func(*pgx.Batch)) (*GroupCommit, error) {
	g := NewGroupCommit([]Call{c})
	b := &pgx.Batch{}
	for _, queue := range first {
		queue(b)
	}
	g.QueueFindHolds(b, reservationrows.HeldMax+1)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("read what is held: %w", err)
	}
	if g.HoldCount(0) > reservationrows.HeldMax {
		return nil, fmt.Errorf("cart %s holds more than %d reservations", c.CartID, reservationrows.HeldMax)
	}
	lock := holdLock{stocks: func(b *pgx.Batch) { g.stocks.queue(b, lockSQL, g.AllVariants(), nil) }, then: g.queueRead}
	lock.refs, lock.pairs = g.holds()
	if err := lock.lockTx(ctx, tx); err != nil {
		return nil, err
	}
	g.held = lock.held
	return g, nil
}

// applyTx applies one call in the caller's transaction. first adds statements
// before all others.
func applyTx(ctx context.Context, tx pgx.Tx, c Call, first ...func(*pgx.Batch)) ([]reservations.Reservation, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	g, err := lockOneTx(ctx, tx, c, first...)
	if err != nil {
		return nil, err
	}
	result := g.Decide()[0]
	b := &pgx.Batch{}
	b.Queue(releaseSQL)
	g.QueueWrites(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("write what was decided: %w", err)
	}
	return result.Reservations, result.Err
}
