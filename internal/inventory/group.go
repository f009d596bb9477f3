package inventory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// Action is a synchronous verb.
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
	// CartID names the cart, and VariantID or KitID for ReleaseCart the variant or
	// the kit, both "" for all; ReservationID names the hold.
	CartID, VariantID, KitID string
	ReservationID            uuid.UUID
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
// stocks, and QueueLockHolds then the holds, both without waiting.
// ReadAllotmentsTx reads what is left of their allotments. Decide decides each
// call under the locks. QueueWrites writes all results.
//
// The calls are valid, and no two of them may work on the same hold: exclude a
// call that Overlaps an earlier one.
//
// The transaction must be READ COMMITTED for the verbs of carts.
type GroupCommit struct {
	Members []Member // the calls, in their order

	stocks
	held          []reservations.Reservation
	checkouts     []reservationrows.Holder         // the carts to be checked out,
	expiredUnseen *[]reservationrows.ExpiredUnseen // and those of them with an unseen expiry

	endings
	extended     []reservations.Reservation
	acknowledged []reservationrows.HolderKey
}

// Member is a call of a group commit.
type Member struct {
	Call
	// Excluded leaves the call out of what is locked, decided and written from
	// now on.
	Excluded bool
	// LockedHold means that another transaction has locked one of the call's
	// holds: exclude the call before Decide.
	LockedHold bool
	// Result is set by Decide, except that of an excluded call.
	Result Result

	found []reservationrows.Named
	holds []reservations.Reservation // those of found that are locked, in the order of their ids
}

// NewGroupCommit makes the group commit of the calls.
func NewGroupCommit(calls []Call) *GroupCommit {
	g := &GroupCommit{Members: make([]Member, len(calls))}
	for i, c := range calls {
		g.Members[i].Call = c
	}
	return g
}

// included returns the members that are not excluded.
func (g *GroupCommit) included() iter.Seq[*Member] {
	return func(yield func(*Member) bool) {
		for i := range g.Members {
			if m := &g.Members[i]; !m.Excluded && !yield(m) {
				return
			}
		}
	}
}

// QueueFindHolds adds to b what reads the holds of the calls, at most limit for
// each call of a cart.
func (g *GroupCommit) QueueFindHolds(b *pgx.Batch, limit int) {
	var pairs []reservationrows.HolderKey
	var refs []reservationrows.Ref
	var ofPair, ofRef []*Member
	for m := range g.included() {
		if m.Action.ofCart() {
			pairs = append(pairs, reservationrows.HolderKey{TenantID: m.TenantID, HolderID: m.CartID, ResourceKey: m.VariantID})
			ofPair = append(ofPair, m)
		} else {
			refs = append(refs, reservationrows.Ref{TenantID: m.TenantID, ReservationID: m.ReservationID})
			ofRef = append(ofRef, m)
		}
	}
	if len(pairs) > 0 {
		reservationrows.QueueHeldOf(b, Kind, pairs, limit, func(i int, n reservationrows.Named) { ofPair[i].found = append(ofPair[i].found, n) })
	}
	if len(refs) > 0 {
		reservationrows.QueueNamed(b, Kind, refs, func(i int, n reservationrows.Named) { ofRef[i].found = append(ofRef[i].found, n) })
	}
}

// HoldCount is how many holds the call works on.
func (m *Member) HoldCount() int { return len(m.found) }

// Variants returns the variants of the call's holds, one for each hold.
func (m *Member) Variants() []Ref {
	refs := make([]Ref, len(m.found))
	for i, n := range m.found {
		refs[i] = Ref{n.TenantID, n.ResourceKey}
	}
	return refs
}

// Overlaps reports whether the call may work on the same holds as an earlier
// call of the group that is not excluded. Two calls of one hold overlap, and so
// do a call of a cart and any other call of the same cart.
func (g *GroupCommit) Overlaps(index int) bool {
	m := &g.Members[index]
	for i := range index {
		if other := &g.Members[i]; !other.Excluded && other.overlaps(m) {
			return true
		}
	}
	return false
}

func (m *Member) overlaps(other *Member) bool {
	switch {
	case m.TenantID != other.TenantID:
		return false
	case m.Action.ofCart() || other.Action.ofCart():
		return m.holder() == other.holder()
	}
	return m.ReservationID == other.ReservationID
}

// holder is the cart of the call's holds, "" for a hold that does not exist.
func (m *Member) holder() string {
	switch {
	case m.Action.ofCart():
		return m.CartID
	case len(m.found) > 0:
		return m.found[0].HolderID
	}
	return ""
}

// AllVariants returns the distinct variants of the holds of all calls that are
// not excluded.
func (g *GroupCommit) AllVariants() (refs []Ref) {
	seen := make(map[Ref]bool)
	for m := range g.included() {
		for _, n := range m.found {
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
		g.queue(b, lockSQL, []Ref{*wait})
	}
	g.queue(b, lockUnlockedSQL, g.AllVariants())
}

// HasLocked reports whether QueueLockStocks has locked the variant's stock.
func (g *GroupCommit) HasLocked(variant Ref) bool { return g.counters[variant] != nil }

// QueueLockHolds adds to b what locks the holds that no other transaction has
// locked, after their stocks, and reads all that the decisions need. It sets
// LockedHold of the calls of the others.
func (g *GroupCommit) QueueLockHolds(b *pgx.Batch) {
	if refs, pairs := g.holds(); len(refs)+len(pairs) > 0 {
		reservationrows.QueueTryLock(b, Kind, refs, pairs, func(locked, others []reservations.Reservation) {
			g.held = locked
			g.eachHold(others, func(m *Member, _ *reservations.Reservation) { m.LockedHold = true })
		})
	}
	pg.QueueClock(b, &g.now)
	g.queueExpiredUnseen(b)
}

// holds returns the holds of the calls that are not excluded, by id or by cart
// and variant.
func (g *GroupCommit) holds() (refs []reservationrows.Ref, pairs []reservationrows.HolderKey) {
	for m := range g.included() {
		seen := make(map[string]bool)
		for _, n := range m.found {
			switch {
			case !m.Action.ofCart():
				refs = append(refs, n.Ref)
			case !seen[n.ResourceKey]:
				seen[n.ResourceKey] = true
				pairs = append(pairs, n.HolderKey())
			}
		}
	}
	return refs, pairs
}

// eachHold calls do for each of the reservations, with the call that works on
// it: the call of the hold, or of the cart if it has found another hold of the
// variant.
func (g *GroupCommit) eachHold(of []reservations.Reservation, do func(m *Member, r *reservations.Reservation)) {
	byRef, byPair := make(map[reservationrows.Ref]*Member), make(map[reservationrows.HolderKey]*Member)
	for m := range g.included() {
		for _, n := range m.found {
			if m.Action.ofCart() {
				byPair[n.HolderKey()] = m
			} else {
				byRef[n.Ref] = m
			}
		}
	}
	for i := range of {
		r := &of[i]
		m := cmp.Or(byRef[r.Ref()], byPair[reservationrows.HolderKeyOf(r)])
		if m != nil {
			do(m, r)
		}
	}
}

// queueExpiredUnseen adds to b what reads, under the locks, which of the carts
// to be checked out have an unseen expiry.
func (g *GroupCommit) queueExpiredUnseen(b *pgx.Batch) {
	for m := range g.included() {
		if m.Action == CheckoutCart {
			g.checkouts = append(g.checkouts, reservationrows.Holder{TenantID: m.TenantID, HolderID: m.CartID})
		}
	}
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
	if g.Members[0].HoldCount() > reservationrows.HeldMax {
		return nil, fmt.Errorf("cart %s holds more than %d reservations", c.CartID, reservationrows.HeldMax)
	}
	lock := holdLock{variants: g.AllVariants(), then: g.queueExpiredUnseen}
	lock.refs, lock.pairs = g.holds()
	if err := lock.lockTx(ctx, tx); err != nil {
		return nil, err
	}
	g.stocks, g.held = lock.stocks, lock.held
	if err := g.ReadAllotmentsTx(ctx, tx); err != nil {
		return nil, err
	}
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
	g.Decide()
	b := &pgx.Batch{}
	b.Queue(releaseSQL)
	g.QueueWrites(b)
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("write what was decided: %w", err)
	}
	return g.Members[0].Result.Reservations, g.Members[0].Result.Err
}
