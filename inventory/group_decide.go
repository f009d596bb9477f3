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
	"github.com/holdfast/holdfast/reservations"
)

// Decide decides each call individually, as it is under the locks, and returns the results in the order of the calls. Those
// left out have none.
func (g *Group) Decide() []Result {
	g.ended, g.moves = make(map[endingKey][]reservationrows.Ref), make(map[Ref]move)
	byRef := make(map[reservationrows.Ref]int, len(g.held))
	byLine := make(map[reservationrows.Line][]int, len(g.held))
	for i := range g.held {
		r := &g.held[i]
		byRef[r.Ref()] = i
		line := reservationrows.Line{TenantID: r.TenantID, HolderID: r.HolderID, ResourceKey: r.ResourceKey}
		byLine[line] = append(byLine[line], i)
	}
	results := make([]Result, len(g.calls))
	for i := range g.calls {
		if g.out[i] {
			continue
		}
		c := &g.calls[i]
		var places []int
		seen := make(map[string]bool)
		for _, n := range g.needs[i] {
			line := reservationrows.Line{TenantID: n.TenantID, HolderID: n.HolderID, ResourceKey: n.ResourceKey}
			switch {
			case !c.Action.ofCart():
				if at, ok := byRef[n.Ref]; ok {
					places = append(places, at)
				}
			case !seen[n.ResourceKey]:
				seen[n.ResourceKey] = true
				for _, at := range byLine[line] {
					if g.held[at].Status == reservations.Held { // not one that was named, and has ended
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
		results[i] = g.decide(c, of, g.lost[reservationrows.Holder{TenantID: c.TenantID, HolderID: c.CartID}])
	}
	return results
}

// decide decides one call about the holds of, which are locked, and notes what it writes.
func (g *Group) decide(c *Call, of []reservations.Reservation, lost string) Result {
	live, due := splitDue(of, g.now)
	switch c.Action {
	case CheckoutCart:
		switch {
		case lost != "":
			return Result{Err: fmt.Errorf("check out cart %s: variant %s: %w", c.CartID, lost, ErrHoldExpired)}
		case len(live) == 0:
			return Result{Err: ErrCartEmpty}
		}
		return Result{Reservations: g.end(live, reservationrows.Ending{To: reservations.Committed, At: g.now, Origin: c.Origin})}
	case ReleaseCart:
		g.end(due, expiry(g.now))
		g.dismiss = append(g.dismiss, reservationrows.Line{TenantID: c.TenantID, HolderID: c.CartID, ResourceKey: c.VariantID})
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

// decideOne decides a call about one hold.
func (g *Group) decideOne(c *Call, of, due []reservations.Reservation) Result {
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

// end notes that the holds end so, and returns them as they are then.
func (g *Group) end(held []reservations.Reservation, ending reservationrows.Ending) []reservations.Reservation {
	key := endingKey{ending.To, ending.Reason}
	for i := range held {
		ref := Ref{held[i].TenantID, held[i].ResourceKey}
		g.moves[ref] = g.moves[ref].ended(&held[i], ending.To)
		g.ended[key] = append(g.ended[key], held[i].Ref())
		g.entries = append(g.entries, ending.Apply(&held[i]))
	}
	return held
}

// extend notes that the holds last longer, all or none.
func (g *Group) extend(c *Call, held []reservations.Reservation) Result {
	entries, err := reservationrows.Extend(held, g.now, c.By, c.LifetimeMax, c.Origin)
	if err != nil {
		return Result{Err: err}
	}
	g.extended = append(g.extended, held...)
	g.entries = append(g.entries, entries...)
	return Result{Reservations: held}
}

// QueueWrites adds to b what writes the decisions: the holds, the counters and the record. It adds nothing if nothing is
// to be written.
func (g *Group) QueueWrites(b *pgx.Batch) {
	for key, refs := range g.ended {
		ending := reservationrows.Ending{To: key.to, Reason: key.reason, At: g.now}
		ending.QueueRows(b, refs)
	}
	if len(g.extended) > 0 {
		reservationrows.QueueDeadlines(b, g.extended)
	}
	if len(g.dismiss) > 0 {
		slices.SortFunc(g.dismiss, func(a, b reservationrows.Line) int { // two groups lock the rows in one order
			return cmp.Or(slices.Compare(a.TenantID[:], b.TenantID[:]), cmp.Compare(a.HolderID, b.HolderID), cmp.Compare(a.ResourceKey, b.ResourceKey))
		})
		reservationrows.QueueDismiss(b, Kind, g.dismiss)
	}
	queueMoves(b, g.moves)
	audit.Queue(b, g.entries)
}
