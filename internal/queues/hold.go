package queues

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// holdFunc decides requests under the locks of their stocks, as
// inventory.HoldTx does.
type holdFunc func(ctx context.Context, tx pgx.Tx, asks []inventory.HoldRequest, terms inventory.Terms) (*inventory.Holding, error)

// finishFunc adds to b what writes that requests are finished, as
// requestrows.QueueFinish does.
type finishFunc func(b *pgx.Batch, finished []requests.Request, reasons []requests.Reason, now time.Time)

// holdFuncFor returns how a batch is decided. A drain of a lane that does not
// wait for the lock of a stock does so only for the variant in only, if that is
// set. No wait is longer than deferWait: then the drain ends and begins again
// later, and other slots are drained meanwhile. No drain waits for a hold.
func (d *decider) holdFuncFor(only *inventory.Ref) holdFunc {
	switch {
	case !d.traits.waits && only == nil:
		return inventory.HoldUnlockedTx
	case d.traits.endsDue:
		return withShortLockTimeout(inventory.HoldEndingDueTx)
	default:
		return withShortLockTimeout(inventory.HoldTx)
	}
}

// holdRequests translates the requests for the inventory. A request of several
// lines becomes a set of hold requests; several describes the sets, and is nil if
// there is none.
func (d *decider) holdRequests(claimed []requests.Request, now time.Time) (asks []inventory.HoldRequest, several *severalLines) {
	asks = make([]inventory.HoldRequest, 0, len(claimed))
	if slices.ContainsFunc(claimed, func(r requests.Request) bool { return r.Lines != nil }) {
		several = &severalLines{}
	}
	for i := range claimed {
		r, first := &claimed[i], len(asks)
		if r.Lines == nil {
			asks = append(asks, holdRequest(r))
		} else {
			asks = append(asks, several.set(r, i+1)...)
		}
		for j := first; j < len(asks); j++ {
			asks[j].Stale = r.Status != requests.Waiting && d.isTooOld(r, now)
		}
		if several != nil {
			several.first = append(several.first, first)
			several.parts = append(several.parts, make([]requestrows.Submission, len(asks)-len(several.parts))...)
		}
	}
	return asks, several
}

// holdRequest translates a request for units of one variant.
func holdRequest(r *requests.Request) inventory.HoldRequest {
	ask := inventory.HoldRequest{
		TenantID: r.TenantID, RequestID: r.RequestID, CartID: r.CartID, CustomerID: r.CustomerID, VariantID: r.VariantID,
		Quantity: int64(r.Quantity), Replace: r.Kind == requests.Set, Wait: r.Kind == requests.Wait, Offered: r.Status == requests.Waiting, Origin: requestrows.OriginOf(r),
	}
	if r.Units != nil {
		ask.UnitIDs, ask.Contiguous, ask.AllotmentID = r.Units.IDs, r.Units.Contiguous, r.Units.Allotment
		ask.Block = ask.AllotmentID == ""
	}
	ask.KitID = r.KitID
	return ask
}

// isTooOld reports whether the request has waited longer than it may at the
// time now, a reading of the database's clock.
func (d *decider) isTooOld(r *requests.Request, now time.Time) bool {
	return now.Sub(r.CreatedAt) > d.config.AgeMax
}

// readOutcomes returns the requests that are finished and their reasons, and those
// that begin to wait in line. It counts them, and notes the others in the report.
func (d *decider) readOutcomes(claimed []requests.Request, outcomes []inventory.Outcome, report *Report) (decided []requests.Request, reasons []requests.Reason, waiting []requests.Request) {
	decided, reasons = make([]requests.Request, 0, len(claimed)), make([]requests.Reason, 0, len(claimed))
	for i, outcome := range outcomes {
		reason := requests.Reason("")
		switch {
		case !outcome.Decided():
			d.leave(&claimed[i], outcome, report)
			continue
		case outcome == inventory.Waiting:
			if claimed[i].Status != requests.Waiting {
				waiting = append(waiting, claimed[i])
			}
			continue
		case outcome.Rejected():
			reason = requests.Reason(outcome)
			report.Rejected++
		case outcome == inventory.Granted:
			report.Held++
		}
		decided, reasons = append(decided, claimed[i]), append(reasons, reason)
	}
	return decided, reasons, waiting
}

// leave notes what the next claims must leave out because of an undecided
// request: the requests for a variant whose stock is locked, or those of one
// cart for the variant.
//
// In a slot of one variant, a request that waits for the unit of a locked due hold is
// claimed again each time. So it is before later requests in each batch, and
// the first to get a unit that becomes free. These requests are of the slot's
// variant. Of those that name the same units, one waits; of those for any units,
// or for neighbours, no more of one size than there are locked units. There is
// no such bound for requests that name a locked unit beside different others,
// nor for the later requests of a waiting cart, which wait with it.
func (d *decider) leave(r *requests.Request, outcome inventory.Outcome, report *Report) {
	skip := requestrows.Skip{Ref: variantOf(r)}
	switch {
	case outcome == inventory.LockedDue && d.traits.oneVariant:
		return
	case outcome != inventory.Locked:
		skip.CartID = r.CartID
	}
	if report.left == nil {
		report.left = make(map[requestrows.Skip]struct{})
	}
	report.left[skip] = struct{}{}
}
