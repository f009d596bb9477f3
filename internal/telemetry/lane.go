package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var (
	decisions = counter("holdfast.decision.requests", "Requests decided, by the outcome: held, or the reason of the rejection.")
	batches   = sizes("holdfast.decision.batch_size", "Requests decided in one transaction.")
	latency   = durations("holdfast.decision.latency", "Time from the admission of a request to its decision.", waitBounds)
	expired   = counter("holdfast.reservations.expired", "Holds expired, by what expired them.")
	moves     = counter("holdfast.lane.moves", "Variants promoted or demoted automatically, and tenants diverted or let back.")
	behind    = counter("holdfast.lane.sequence_behind", "Slots whose low-water mark was ahead of the sequence, and which begin at 0 again.")
	breakers  = upDownCounter("holdfast.lane.breakers_open", "Circuit breakers of this process that are open, because every request fails with one error: of a variant, or of the lane.")
)

// Batch is what one transaction of a lane decided.
type Batch struct {
	Lane string
	// Outcomes counts the requests by outcome: "held", or the reason of the rejection.
	Outcomes map[string]int
	// Waited are the times from the admission of each request to Now.
	Waited []time.Duration
}

// Decided records one committed batch: its size under holdfast.decision.batch_size, its requests by outcome under
// holdfast.decision.requests, and the time each of them waited under holdfast.decision.latency, all with the label lane.
func Decided(ctx context.Context, b Batch) {
	lane := attribute.String("lane", b.Lane)
	if c := decisions(); c.Enabled(ctx) {
		for outcome, n := range b.Outcomes {
			c.Add(ctx, int64(n), metric.WithAttributes(lane, attribute.String("outcome", outcome)))
		}
	}
	if h := batches(); h.Enabled(ctx) {
		h.Record(ctx, int64(len(b.Waited)), metric.WithAttributes(lane))
	}
	if h := latency(); h.Enabled(ctx) {
		set := metric.WithAttributeSet(attribute.NewSet(lane))
		for _, wait := range b.Waited {
			h.Record(ctx, max(wait, 0).Seconds(), set) // less than 0: the database's clock was set back
		}
	}
}

// Expired counts n holds that one transaction expired, under holdfast.reservations.expired with the label by: "sweep", or
// "drain" for those that a drain ended with what it decided.
func Expired(ctx context.Context, by string, n int) {
	if c := expired(); n > 0 && c.Enabled(ctx) {
		c.Add(ctx, int64(n), metric.WithAttributes(attribute.String("by", by)))
	}
}

// Moved counts n moves between the lanes that were committed, under holdfast.lane.moves with the label action, one of the
// fixed words of package hot.
func Moved(ctx context.Context, action string, n int) {
	if c := moves(); n > 0 && c.Enabled(ctx) {
		c.Add(ctx, int64(n), metric.WithAttributes(attribute.String("action", action)))
	}
}

// SequenceBehind counts one slot of the lane whose low-water mark was ahead of the sequence of requests, and was set back to
// 0, under holdfast.lane.sequence_behind with the label lane.
func SequenceBehind(ctx context.Context, lane string) {
	if c := behind(); c.Enabled(ctx) {
		c.Add(ctx, 1, metric.WithAttributes(attribute.String("lane", lane)))
	}
}

// BreakerOpened adds delta, 1 or -1, to the open circuit breakers of the lane in this process, under
// holdfast.lane.breakers_open with the label lane.
func BreakerOpened(ctx context.Context, lane string, delta int64) {
	if c := breakers(); c.Enabled(ctx) {
		c.Add(ctx, delta, metric.WithAttributes(attribute.String("lane", lane)))
	}
}
