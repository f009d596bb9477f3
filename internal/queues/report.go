package queues

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

// Report is what a drain did.
type Report struct {
	Claimed  int `json:"claimed"`
	Held     int `json:"held"`
	Rejected int `json:"rejected"`
	// Retried is how many attempts of isolated retry there were.
	Retried int `json:"retried"`
	// More means that the stream may have more requests: a full batch was
	// claimed, or the drain's time was up. Moving means that variants of the
	// slot are moving between the lanes.
	More   bool `json:"more"`
	Moving bool `json:"moving,omitempty"`
	// Throttled means that the lane's rate cap left nothing to claim.
	Throttled bool `json:"throttled,omitempty"`

	locked   *inventory.Ref                // the variant whose stock stayed locked, so that nothing was decided
	outcomes *outcomes                     // of a transaction that decided something
	left     map[requestrows.Skip]struct{} // what its next claims must leave out for a while
	// scattered are requests of several lines with a hot variant.
	scattered []requests.Request
	streams   []lanes.Stream // that got parts of a request
}

// outcome returns the drain's outcome for telemetry; "" leaves it to the error.
func (r *Report) outcome(err error) string {
	switch {
	case errors.Is(err, lanes.ErrBusy), lockedStock(err) != nil:
		return "busy"
	case errors.Is(err, errCapped), err == nil && r.Claimed == 0:
		return "idle"
	default:
		return ""
	}
}

func (r *Report) add(o Report) {
	r.Claimed += o.Claimed
	r.Held += o.Held
	r.Rejected += o.Rejected
	r.Retried += o.Retried
	r.More, r.Moving, r.Throttled = o.More, o.Moving, o.Throttled
}

// outcomes is what one transaction decided, for the metrics, which count it
// after the commit.
type outcomes struct {
	telemetry.Batch
	decided []requests.Request
	reasons []requests.Reason  // of decided
	holding *inventory.Holding // nil: nothing was held or expired
}

// outcomesOf returns the outcomes of the decided requests: reasons[i] is that
// of decided[i], empty if it is held.
func outcomesOf(lane lanes.Lane, decided []requests.Request, reasons []requests.Reason, now time.Time) *outcomes {
	o := &outcomes{decided: decided, reasons: reasons, Batch: telemetry.Batch{Lane: string(lane), Outcomes: make(map[string]int)}}
	for i := range decided {
		outcome := string(reasons[i])
		if outcome == "" {
			outcome = "held"
		}
		o.Outcomes[outcome]++
		if decided[i].Status != requests.Waiting { // else most of the time was spent in line
			o.Waited = append(o.Waited, now.Sub(decided[i].CreatedAt))
		}
	}
	return o
}

// committed counts the requests that a transaction finished and notifies
// waiters; o is nil if it decided none. It only logs a notification that fails,
// because waiters also read periodically.
func (d *Drain) committed(ctx context.Context, finished []requests.Request, o *outcomes) {
	if d.config.Finished != nil {
		d.config.Finished(finished)
	}
	if err := requestrows.NotifyFinished(ctx, d.db, finished); err != nil {
		d.log.WarnContext(ctx, "waiters were not notified of finished requests", "error", err)
	}
	d.completeParents(ctx, finished)
	if o == nil {
		return
	}
	d.recordDecided(ctx, o.decided, o.reasons)
	d.count(ctx, o)
}

// count counts what a committed transaction decided and expired.
func (d *decider) count(ctx context.Context, o *outcomes) {
	telemetry.Decided(ctx, o.Batch)
	if o.holding != nil {
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

// recordRate adds the requests that this process decided since the last call to
// the lane's measured rate.
func (d *decider) recordRate(ctx context.Context) error {
	decided := d.decided.Swap(0)
	if decided == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return lanes.RecordRate(ctx, d.db, d.lane, decided)
}
