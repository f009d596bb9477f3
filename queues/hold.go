package queues

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// holdFunc decides requests under the locks of their stocks, as
// inventory.HoldTx does.
type holdFunc func(ctx context.Context, tx pgx.Tx, asks []inventory.HoldRequest, terms inventory.Terms) (*inventory.Holding, error)

// holdFuncFor returns how a batch is decided. The hot lane also expires further due
// holds of its variants. The normal lane does not wait for locked stocks or
// holds; if only is set, it waits for the lock of that variant's stock. No wait
// is longer than deferWait: then the drain ends and begins again later, and
// other slots are drained meanwhile.
func (d *Drain) holdFuncFor(only *inventory.Ref) holdFunc {
	switch {
	case d.due != nil:
		return withShortLockTimeout(d.due.HoldTx)
	case only != nil:
		return withShortLockTimeout(inventory.HoldStockTx)
	default:
		return inventory.HoldUnlockedTx
	}
}

// holdRequests translates the requests for the inventory.
func (d *Drain) holdRequests(claimed []requests.Request, now time.Time) []inventory.HoldRequest {
	asks := make([]inventory.HoldRequest, len(claimed))
	for i := range claimed {
		r := &claimed[i]
		asks[i] = inventory.HoldRequest{
			TenantID: r.TenantID, RequestID: r.RequestID, CartID: r.CartID, VariantID: r.VariantID,
			Quantity: int64(r.Quantity), Replace: r.Kind == requests.Set,
			UnitIDs: r.UnitIDs(), Contiguous: r.Units != nil && r.Units.Contiguous, Block: r.Units != nil,
			Stale: d.isTooOld(r, now), Origin: r.Origin(),
		}
	}
	return asks
}

// isTooOld reports whether the request has waited longer than it may at the
// time now, a reading of the database's clock.
func (d *Drain) isTooOld(r *requests.Request, now time.Time) bool {
	return now.Sub(r.CreatedAt) > d.config.AgeMax
}

// readOutcomes returns the requests that were decided and their reasons. It
// counts them, and records which stocks were locked.
func (d *Drain) readOutcomes(claimed []requests.Request, outcomes []inventory.Outcome, report *Report) (decided []requests.Request, reasons []requests.Reason) {
	decided, reasons = make([]requests.Request, 0, len(claimed)), make([]requests.Reason, 0, len(claimed))
	locked, free := make(map[inventory.Ref]struct{}), make(map[inventory.Ref]struct{})
	for i, outcome := range outcomes {
		if outcome == inventory.Locked {
			locked[variantOf(&claimed[i])] = struct{}{}
			continue
		}
		reason := requests.Reason("")
		switch {
		case outcome.Rejected():
			reason = requests.Reason(outcome)
			report.Rejected++
		case outcome == inventory.Granted:
			report.Held++
		}
		decided, reasons = append(decided, claimed[i]), append(reasons, reason)
		if d.locked != nil {
			free[variantOf(&claimed[i])] = struct{}{}
		}
	}
	if d.locked != nil {
		d.locked.record(claimed[0].Slot, locked, free)
	}
	return decided, reasons
}
