package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/reservations"
)

// ReadAllotmentsTx reads, under the locks, the allotments to which units of the
// holds go back. Call it before Decide. It is correct at every isolation level.
func (g *GroupCommit) ReadAllotmentsTx(ctx context.Context, tx pgx.Tx) (err error) {
	g.setAside, err = setAsidesOfTx(ctx, tx, g.held, g.now)
	return err
}

// Decide decides each call individually, by the rows as they are under the
// locks, and sets its Result.
func (g *GroupCommit) Decide() {
	g.eachHold(g.held, func(m *Member, r *reservations.Reservation) {
		if m.Action.ofCart() && r.Status != reservations.Held { // a named hold may have ended
			return
		}
		m.holds = append(m.holds, *r)
	})
	for m := range g.included() {
		m.Result = g.decide(m)
	}
}

// decide decides one call on its locked holds, and adds what it writes to g.
func (g *GroupCommit) decide(m *Member) Result {
	if m.KitID != "" {
		m.holds = slices.DeleteFunc(m.holds, func(r reservations.Reservation) bool { return r.KitID != m.KitID })
	}
	live, due := splitDue(m.holds, g.now)
	switch m.Action {
	case CheckoutCart:
		if err := g.mayCheckOut(m, live); err != nil {
			return Result{Err: err}
		}
		return g.end(live, reservationrows.Ending{To: reservations.Committed, At: g.now, Origin: m.Origin})
	case ReleaseCart:
		switch {
		case inCheckout(live):
			return Result{Err: reservationrows.ErrCheckoutInProgress}
		case m.VariantID != "" && inKit(live):
			return Result{Err: fmt.Errorf("remove variant %s from cart %s: %w", m.VariantID, m.CartID, ErrPartOfKit)}
		}
		g.end(due, expiry(g.now))
		if m.KitID == "" {
			g.acknowledged = append(g.acknowledged, reservationrows.HolderKey{TenantID: m.TenantID, HolderID: m.CartID, ResourceKey: m.VariantID})
		}
		return g.end(live, reservationrows.Ending{To: reservations.Released, Reason: m.Reason, At: g.now, Origin: m.Origin})
	case ExtendCart:
		if len(m.holds) == 0 {
			return Result{Err: ErrCartEmpty}
		}
		result := g.extend(m)
		if _, conflicts := errors.AsType[*reservations.ConflictError](result.Err); conflicts {
			result.Err = fmt.Errorf("extend cart %s: %w", m.CartID, errors.Join(ErrHoldExpired, result.Err))
		}
		return result
	default:
		return g.decideOne(m, due)
	}
}

// mayCheckOut returns why a cart with these live holds can't be checked out.
func (g *GroupCommit) mayCheckOut(m *Member, live []reservations.Reservation) error {
	cart := reservationrows.Holder{TenantID: m.TenantID, HolderID: m.CartID}
	expired := slices.IndexFunc(*g.expiredUnseen, func(e reservationrows.ExpiredUnseen) bool { return g.checkouts[e.Index] == cart })
	switch {
	case inCheckout(live):
		return reservationrows.ErrCheckoutInProgress
	case expired >= 0:
		return fmt.Errorf("check out cart %s: variant %s: %w", m.CartID, (*g.expiredUnseen)[expired].ResourceKey, ErrHoldExpired)
	case len(live) == 0:
		return ErrCartEmpty
	}
	return nil
}

// decideOne decides a call on one hold.
func (g *GroupCommit) decideOne(m *Member, due []reservations.Reservation) Result {
	if len(m.holds) == 0 {
		return Result{Err: fmt.Errorf("reservation %s: %w", m.ReservationID, reservations.ErrNotFound)}
	}
	if m.Action == ExtendHold {
		return g.extend(m)
	}
	if err := reservationrows.MustBeLive(m.holds, g.now); err != nil {
		if m.Action == ReleaseHold {
			g.end(due, expiry(g.now))
		}
		return Result{Err: err}
	}
	if m.Action == ReleaseHold && inKit(m.holds) {
		return Result{Err: fmt.Errorf("release reservation %s: %w", m.ReservationID, ErrPartOfKit)}
	}
	ending := reservationrows.Ending{To: reservations.Committed, At: g.now, Origin: m.Origin}
	if m.Action == ReleaseHold {
		ending.To, ending.Reason = reservations.Released, m.Reason
	}
	return g.end(m.holds, ending)
}

// end adds the ending of the holds to g, and returns them as they are after it.
func (g *GroupCommit) end(held []reservations.Reservation, ending reservationrows.Ending) Result {
	g.count(held, ending.To)
	g.add(held, ending)
	return Result{Reservations: held}
}

// extend adds the new deadlines of the call's holds to g, all or none.
func (g *GroupCommit) extend(m *Member) Result {
	entries, err := reservationrows.Extend(m.holds, g.now, m.By, m.LifetimeMax, m.Origin)
	if err != nil {
		return Result{Err: err}
	}
	g.extended = append(g.extended, m.holds...)
	g.entries = append(g.entries, entries...)
	return Result{Reservations: m.holds}
}

// QueueWrites adds to b what writes the decisions: the holds, the counters and
// the audit rows. It adds nothing if there is nothing to write.
func (g *GroupCommit) QueueWrites(b *pgx.Batch) {
	g.queueRows(b)
	if len(g.extended) > 0 {
		reservationrows.QueueDeadlines(b, g.extended)
	}
	if len(g.acknowledged) > 0 {
		slices.SortFunc(g.acknowledged, func(a, b reservationrows.HolderKey) int { // all groups lock the rows in one order
			return cmp.Or(slices.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.HolderID, b.HolderID), cmp.Compare(a.ResourceKey, b.ResourceKey))
		})
		reservationrows.QueueAcknowledge(b, Kind, g.acknowledged)
	}
	for m := range g.included() {
		if m.Action == ReleaseCart && m.KitID != "" && m.Result.Err == nil {
			reservationrows.QueueAcknowledgeKit(b, Kind, reservationrows.Holder{TenantID: m.TenantID, HolderID: m.CartID}, m.KitID)
		}
	}
	queueDeltas(b, g.deltas)
	audit.Queue(b, g.entries)
	g.queueBack(b)
}
