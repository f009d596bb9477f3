package queues

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

// outcomes is what one transaction decided, for the metrics. They count it once it is committed.
type outcomes struct {
	telemetry.Batch
	decided []requests.Request
	reasons []requests.Reason  // of decided
	holding *inventory.Holding // nil: nothing was held or expired
}

// outcomesOf returns what the transaction decides: reasons[i] of requests[i], empty for one that is granted.
func outcomesOf(lane string, decided []requests.Request, reasons []requests.Reason, now time.Time) *outcomes {
	o := &outcomes{decided: decided, reasons: reasons, Batch: telemetry.Batch{Lane: lane, Outcomes: make(map[string]int), Waited: make([]time.Duration, len(decided))}}
	for i := range decided {
		outcome := string(reasons[i])
		if outcome == "" {
			outcome = "held"
		}
		o.Outcomes[outcome]++
		o.Waited[i] = now.Sub(decided[i].CreatedAt)
	}
	return o
}

// committed announces and counts what a transaction finished; o is nil where it decided nothing. Waiters read again automatically, so an announcement that
// fails is only worth a line in the log.
func (d *Drain) committed(ctx context.Context, finished []requests.Request, o *outcomes) {
	if d.config.Finished != nil {
		d.config.Finished(finished)
	}
	if err := requests.Announce(ctx, d.db, finished); err != nil {
		d.log.WarnContext(ctx, "finished requests were not announced", "error", err)
	}
	if o == nil {
		return
	}
	d.passed(ctx, o.decided, o.reasons)
	d.count(ctx, o)
}

// count counts what a committed transaction decided and expired.
func (d *Drain) count(ctx context.Context, o *outcomes) {
	telemetry.Decided(ctx, o.Batch)
	if o.holding != nil {
		d.due.Committed(o.holding)
		telemetry.Expired(ctx, "drain", o.holding.Expired())
	}
}

// linkTo links the context's span to the traces of the requests.
func linkTo(ctx context.Context, claimed []requests.Request) {
	var links telemetry.Links
	for i := range claimed {
		links.Add(claimed[i].TraceParent)
	}
	links.To(ctx)
}
