package queues

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// holdFunc decides asks under the locks of their stocks, as inventory.HoldTx does.
type holdFunc func(ctx context.Context, tx pgx.Tx, asks []inventory.Ask, terms inventory.Terms) (*inventory.Holding, error)

const lockTimeoutSQL = `SELECT set_config('lock_timeout', $1, true)`

// holdFor returns how a batch is decided: in the hot lane with due holds of its variants ended besides, in the normal lane
// without waiting for locked stocks, or, for one variant, with a wait for its lock. No wait is longer than deferWait: then
// the drain begins again later, and others have its turn.
func (d *Drain) holdFor(only *inventory.Ref) holdFunc {
	switch {
	case d.due != nil:
		return waitBriefly(d.due.HoldTx)
	case only != nil:
		return waitBriefly(inventory.HoldTx)
	default:
		return inventory.HoldFreeTx
	}
}

func waitBriefly(hold holdFunc) holdFunc {
	return func(ctx context.Context, tx pgx.Tx, asks []inventory.Ask, terms inventory.Terms) (*inventory.Holding, error) {
		if _, err := tx.Exec(ctx, lockTimeoutSQL, strconv.FormatInt(deferWait.Milliseconds(), 10)); err != nil {
			return nil, err
		}
		return hold(ctx, tx, asks, terms)
	}
}

// asks are what the requests ask of the inventory.
func (d *Drain) asks(claimed []requests.Request, now time.Time) []inventory.Ask {
	asks := make([]inventory.Ask, len(claimed))
	for i := range claimed {
		r := &claimed[i]
		asks[i] = inventory.Ask{
			TenantID: r.TenantID, RequestID: r.RequestID, CartID: r.CartID, VariantID: r.VariantID,
			Quantity: int64(r.Quantity), Replace: r.Kind == requests.Set,
			Stale: now.Sub(r.CreatedAt) > d.config.AgeMax, Origin: r.Origin(),
		}
	}
	return asks
}

// read returns which requests were decided and how, counts them, and notes which stocks were locked.
func (d *Drain) read(claimed []requests.Request, verdicts []inventory.Verdict, report *Report) (decided []requests.Request, reasons []requests.Reason) {
	decided, reasons = make([]requests.Request, 0, len(claimed)), make([]requests.Reason, 0, len(claimed))
	locked, free := make(map[inventory.Ref]struct{}), make(map[inventory.Ref]struct{})
	for i, verdict := range verdicts {
		if verdict == inventory.Locked {
			locked[variantOf(&claimed[i])] = struct{}{}
			continue
		}
		reason := requests.Reason("")
		switch {
		case verdict.Rejected():
			reason = requests.Reason(verdict)
			report.Rejected++
		case verdict == inventory.Granted:
			report.Held++
		}
		decided, reasons = append(decided, claimed[i]), append(reasons, reason)
		if d.locked != nil {
			free[variantOf(&claimed[i])] = struct{}{}
		}
	}
	if d.locked != nil {
		d.locked.note(claimed[0].Slot, locked, free)
	}
	return decided, reasons
}
