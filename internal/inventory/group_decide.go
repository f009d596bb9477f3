package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/postings"
	"github.com/holdfast/holdfast/reservations"
)

// Decide decides each call individually, by the rows as they are under the
// locks, and returns the results in the order of the calls. The result of an
// excluded call is the zero value.
func (g *GroupCommit) Decide() []Result {
	g.ended, g.deltas = make(map[endingKey][]reservationrows.Ref), make(map[Ref]counterDelta)
	g.claims = make(map[endingKey][]postings.Claim)
	byRef := make(map[reservationrows.Ref]int, len(g.held))
	byPair := make(map[reservationrows.HolderKey][]int, len(g.held))
	for i := range g.held {
		r := &g.held[i]
		byRef[r.Ref()] = i
		pair := reservationrows.HolderKeyOf(r)
		byPair[pair] = append(byPair[pair], i)
	}
	results := make([]Result, len(g.calls))
	for i := range g.calls {
		if g.excluded[i] {
			continue
		}
		c := &g.calls[i]
		var places []int
		seen := make(map[string]bool)
		for _, n := range g.found[i] {
			switch {
			case !c.Action.ofCart():
				if at, ok := byRef[n.Ref]; ok {
					places = append(places, at)
				}
			case !seen[n.ResourceKey]:
				seen[n.ResourceKey] = true
				for _, at := range byPair[n.HolderKey()] {
					if g.held[at].Status == reservations.Held { // a named hold may have ended
						places = append(places, at)
					}
				}
			}
		}
		slices.Sort(places) // in the order of their ids
		of := make([]reservations.Reservation, len(places))
		for j, at := range places {
			of[j] = g.held[at]
		}
		results[i] = g.decide(c, of)
	}
	return results
}

// mayCheckOut returns the live holds of a cart, whose locked holds are of, or
// why it can't be checked out.
func (g *GroupCommit) mayCheckOut(c *Call, of []reservations.Reservation) (live []reservations.Reservation, err error) {
	live, _ = splitDue(of, g.now)
	cart := reservationrows.Holder{TenantID: c.TenantID, HolderID: c.CartID}
	expired := slices.IndexFunc(*g.expiredUnseen, func(e reservationrows.ExpiredUnseen) bool { return g.checkouts[e.Index] == cart })
	switch {
	case inCheckout(live):
		return nil, reservations.ErrCheckoutInProgress
	case expired >= 0:
		return nil, fmt.Errorf("check out cart %s: variant %s: %w", c.CartID, (*g.expiredUnseen)[expired].ResourceKey, ErrHoldExpired)
	case len(live) == 0:
		return nil, ErrCartEmpty
	}
	return live, nil
}

// decide decides one call on the locked holds of, and adds what it writes to g.
func (g *GroupCommit) decide(c *Call, of []reservations.Reservation) Result {
	live, due := splitDue(of, g.now)
	switch c.Action {
	case CheckoutCart:
		live, err := g.mayCheckOut(c, of)
		if err != nil {
			return Result{Err: err}
		}
		return Result{Reservations: g.end(live, reservationrows.Ending{To: reservations.Committed, At: g.now, Origin: c.Origin})}
	case ReleaseCart:
		if inCheckout(live) {
			return Result{Err: reservations.ErrCheckoutInProgress}
		}
		g.end(due, expiry(g.now))
		g.acknowledged = append(g.acknowledged, reservationrows.HolderKey{TenantID: c.TenantID, HolderID: c.CartID, ResourceKey: c.VariantID})
		return Result{Reservations: g.end(live, c.released(g.now))}
	case ExtendCart:
		if len(of) == 0 {
			return Result{Err: ErrCartEmpty}
		}
		result := g.extend(c, of)
		if _, conflicts := errors.AsType[*reservations.ConflictError](result.Err); conflicts {
			result.Err = fmt.Errorf("extend cart %s: %w", c.CartID, errors.Join(ErrHoldExpired, result.Err))
		}
		return result
	case CommitHold, ReleaseHold, ExtendHold:
		return g.decideOne(c, of, due)
	}
	return Result{Err: c.Validate()}
}

// decideOne decides a call on one hold.
func (g *GroupCommit) decideOne(c *Call, of, due []reservations.Reservation) Result {
	if len(of) == 0 {
		return Result{Err: fmt.Errorf("reservation %s: %w", c.ReservationID, reservations.ErrNotFound)}
	}
	if c.Action == ExtendHold {
		return g.extend(c, of)
	}
	if err := reservationrows.MustBeLive(of, g.now); err != nil {
		if c.Action == ReleaseHold {
			g.end(due, expiry(g.now))
		}
		return Result{Err: err}
	}
	if c.Action == CommitHold {
		return Result{Reservations: g.end(of, reservationrows.Ending{To: reservations.Committed, At: g.now, Origin: c.Origin})}
	}
	return Result{Reservations: g.end(of, c.released(g.now))}
}

func (c *Call) released(now time.Time) reservationrows.Ending {
	return reservationrows.Ending{To: reservations.Released, Reason: c.Reason, At: now, Origin: c.Origin}
}

// end adds the ending of the holds to g, and returns them as they are after it.
func (g *GroupCommit) end(held []reservations.Reservation, ending reservationrows.Ending) []reservations.Reservation {
	key := endingKey{ending.To, ending.Reason}
	if claims := reservationrows.Claims(held); len(claims) > 0 {
		g.claims[key] = append(g.claims[key], claims...)
	}
	for i := range held {
		ref := Ref{held[i].TenantID, held[i].ResourceKey}
		g.deltas[ref] = g.deltas[ref].ended(&held[i], ending.To)
		g.ended[key] = append(g.ended[key], held[i].Ref())
		g.entries = append(g.entries, ending.Apply(&held[i]))
	}
	return held
}

// extend adds the new deadlines of the holds to g, all or none.
func (g *GroupCommit) extend(c *Call, held []reservations.Reservation) Result {
	entries, err := reservationrows.Extend(held, g.now, c.By, c.LifetimeMax, c.Origin)
	if err != nil {
		return Result{Err: err}
	}
	g.extended = append(g.extended, held...)
	g.entries = append(g.entries, entries...)
	return Result{Reservations: held}
}

// QueueWrites adds to b what writes the decisions: the holds, the counters and
// the audit rows. It adds nothing if there is nothing to write.
func (g *GroupCommit) QueueWrites(b *pgx.Batch) {
	for key, refs := range g.ended {
		ending := reservationrows.Ending{To: key.to, Reason: key.reason, At: g.now}
		ending.QueueRows(b, refs, g.claims[key])
	}
	if len(g.extended) > 0 {
		reservationrows.QueueDeadlines(b, g.extended)
	}
	if len(g.acknowledged) > 0 {
		slices.SortFunc(g.acknowledged, func(a, b reservationrows.HolderKey) int { // all groups lock the rows in one order
			return cmp.Or(slices.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.HolderID, b.HolderID), cmp.Compare(a.ResourceKey, b.ResourceKey))
		})
		reservationrows.QueueAcknowledge(b, Kind, g.acknowledged)
	}
	queueDeltas(b, g.deltas)
	audit.Queue(b, g.entries)
}
