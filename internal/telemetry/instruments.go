package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instrument returns a function that makes an instrument the first time it is
// called.
func instrument[T any](newIn func(metric.Meter) (T, error)) func() T {
	return sync.OnceValue(func() T {
		made, err := newIn(otel.Meter(scope))
		if err != nil {
			otel.Handle(err)
		}
		return made
	})
}

func counter(name, description string) func() metric.Int64Counter {
	return instrument(func(m metric.Meter) (metric.Int64Counter, error) {
		return m.Int64Counter(name, metric.WithDescription(description))
	})
}

// under returns the labels, with that of the context's cell if it has one.
func under(ctx context.Context, labels ...attribute.KeyValue) metric.MeasurementOption {
	if cell := Cell(ctx); cell != "" {
		labels = append(labels, attribute.String("cell", cell))
	}
	return metric.WithAttributeSet(attribute.NewSet(labels...))
}

// add adds n, if it is more than 0, to a counter under the labels.
func add(ctx context.Context, c metric.Int64Counter, n int, labels ...attribute.KeyValue) {
	if n > 0 && c.Enabled(ctx) {
		c.Add(ctx, int64(n), under(ctx, labels...))
	}
}

// upDownCounter is counter for a sum that also decreases.
func upDownCounter(name, description string) func() metric.Int64UpDownCounter {
	return instrument(func(m metric.Meter) (metric.Int64UpDownCounter, error) {
		return m.Int64UpDownCounter(name, metric.WithDescription(description))
	})
}

// addDelta adds delta to a sum under the labels.
func addDelta(ctx context.Context, c metric.Int64UpDownCounter, delta int64, labels ...attribute.KeyValue) {
	if c.Enabled(ctx) {
		c.Add(ctx, delta, under(ctx, labels...))
	}
}

func sizes(name, description string) func() metric.Int64Histogram {
	return instrument(func(m metric.Meter) (metric.Int64Histogram, error) {
		return m.Int64Histogram(name, metric.WithDescription(description), metric.WithExplicitBucketBoundaries(sizeBounds...))
	})
}

// durations is sizes for seconds.
func durations(name, description string, bounds []float64) func() metric.Float64Histogram {
	return instrument(func(m metric.Meter) (metric.Float64Histogram, error) {
		return m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), metric.WithExplicitBucketBoundaries(bounds...))
	})
}

// Limits of the buckets.
var (
	// sizeBounds are numbers of requests, from one to the largest batch.
	sizeBounds = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}
	// verbBounds are seconds: a prepared statement takes less than the first,
	// and a drain times out at the last but one.
	verbBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	// waitBounds are seconds: an idle lane decides within the first few, and an
	// overloaded one rejects what is older than ten minutes.
	waitBounds = []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}
)

var (
	admitted = counter("holdfast.admission.requests", "Requests admitted, without repetitions under a known idempotency key.")
	groups   = sizes("holdfast.admission.group_size", "Requests admitted in one transaction.")
	refusals = counter("holdfast.admission.refusals", "Requests refused before anything was queued, by the reason and whose backlog it was.")
)

// Admitted counts n requests that one transaction admitted to a lane, under
// holdfast.admission.requests with the label lane. Call it after the commit.
func Admitted(ctx context.Context, lane string, n int) {
	add(ctx, admitted(), n, attribute.String("lane", lane))
}

// AdmittedGroup records the number of callers whose requests one transaction
// admitted, under holdfast.admission.group_size.
func AdmittedGroup(ctx context.Context, n int) {
	if h := groups(); h.Enabled(ctx) {
		h.Record(ctx, int64(n), under(ctx))
	}
}

// Refused counts one refused request, under holdfast.admission.refusals. The
// label reason is one of the fixed words of package requests. The label whose
// is "tenant" if the cause is the tenant's own backlog or input, and "all" if
// it is the backlog of all tenants.
func Refused(ctx context.Context, reason string, own bool) {
	whose := "all"
	if own {
		whose = "tenant"
	}
	add(ctx, refusals(), 1, attribute.String("reason", reason), attribute.String("whose", whose))
}

var (
	verbGroups = sizes("holdfast.verbs.group_size", "Calls of synchronous verbs that one transaction decided.")
	verbsAlone = counter("holdfast.verbs.alone", "Calls of synchronous verbs that left their group, each for a separate transaction.")
)

// VerbGroup records the number of calls that one transaction decided, under
// holdfast.verbs.group_size.
func VerbGroup(ctx context.Context, n int) {
	if h := verbGroups(); n > 0 && h.Enabled(ctx) {
		h.Record(ctx, int64(n), under(ctx))
	}
}

// VerbsAlone counts n calls that left their group, under holdfast.verbs.alone.
func VerbsAlone(ctx context.Context, n int) {
	add(ctx, verbsAlone(), n)
}

var (
	decisions = counter("holdfast.decision.requests", "Requests decided, by the outcome: held, or the reason of the rejection.")
	batches   = sizes("holdfast.decision.batch_size", "Requests decided in one transaction.")
	latency   = durations("holdfast.decision.latency", "Time from the admission of a request to its decision.", waitBounds)
	expired   = counter("holdfast.reservations.expired", "Holds expired, by what expired them.")
	moves     = counter("holdfast.lane.moves", "Variants promoted or demoted automatically, and tenants diverted or restored.")
	behind    = counter("holdfast.lane.sequence_behind", "Slots whose low-water mark was ahead of the sequence, and which begin at 0 again.")
	breakers  = upDownCounter("holdfast.lane.breakers_open", "Circuit breakers of this process that are open, because every request fails with one error: of a variant, or of the lane.")
)

// Batch is what one transaction of a lane decided.
type Batch struct {
	Lane string
	// Outcomes counts the requests by outcome: "held", or the reason of the
	// rejection.
	Outcomes map[string]int
	// Waited are the times from the admission of each request to Now.
	Waited []time.Duration
}

// Decided records one committed batch: its size under
// holdfast.decision.batch_size, its requests by outcome under
// holdfast.decision.requests, and the time each of them waited under
// holdfast.decision.latency, all with the label lane.
func Decided(ctx context.Context, b Batch) {
	lane := attribute.String("lane", b.Lane)
	for outcome, n := range b.Outcomes {
		add(ctx, decisions(), n, lane, attribute.String("outcome", outcome))
	}
	if h := batches(); h.Enabled(ctx) {
		h.Record(ctx, int64(len(b.Waited)), under(ctx, lane))
	}
	if h := latency(); h.Enabled(ctx) {
		set := under(ctx, lane)
		for _, wait := range b.Waited {
			h.Record(ctx, max(wait, 0).Seconds(), set) // less than 0: the database's clock was set back
		}
	}
}

// Expired counts n holds that one transaction expired, under
// holdfast.reservations.expired. The label by is "sweep", or "drain" for holds
// that a drain expired in addition to its decisions.
func Expired(ctx context.Context, by string, n int) {
	add(ctx, expired(), n, attribute.String("by", by))
}

// Moved counts n moves between the lanes that were committed, under
// holdfast.lane.moves with the label action, one of the fixed words of package
// hot.
func Moved(ctx context.Context, action string, n int) {
	add(ctx, moves(), n, attribute.String("action", action))
}

// SequenceBehind counts one slot of the lane whose low-water mark was ahead of
// the sequence of requests and was reset to 0, under
// holdfast.lane.sequence_behind with the label lane.
func SequenceBehind(ctx context.Context, lane string) {
	add(ctx, behind(), 1, attribute.String("lane", lane))
}

// BreakerOpened adds delta, 1 or -1, to the open circuit breakers of the lane
// in this process, under holdfast.lane.breakers_open with the label lane.
func BreakerOpened(ctx context.Context, lane string, delta int64) {
	addDelta(ctx, breakers(), delta, attribute.String("lane", lane))
}

var jobSuccesses = counter("holdfast.job.successes", "Passes of a scheduled job that ended without an error.")

// JobSucceeded counts one pass of a scheduled job that ended without an error,
// under holdfast.job.successes with the label pass. The label is not called
// job, because Prometheus gives every series a label job with the name of the
// process.
//
// Call it after the pass has committed, even if the pass found nothing to do.
// An alert fires when the counter does not increase. So it also finds a job
// that never fails because it never runs.
func JobSucceeded(ctx context.Context, job string) {
	add(ctx, jobSuccesses(), 1, attribute.String("pass", job))
}

var (
	checkoutAlerts     = counter("holdfast.checkout.alerts", "Checkouts that were paid and do not receive their units, by reason.")
	checkoutsAskedLate = counter("holdfast.checkout.asked_late", "Checkouts whose payment service was first called after their deadline.")
)

// CheckoutAskedLate counts one checkout whose payment service is first called
// after its deadline, under holdfast.checkout.asked_late.
func CheckoutAskedLate(ctx context.Context) {
	add(ctx, checkoutsAskedLate(), 1)
}

// CheckoutAlert counts one checkout that was paid and does not receive its
// units, under holdfast.checkout.alerts with the label reason, a fixed word of
// package checkouts. Call it after the commit.
func CheckoutAlert(ctx context.Context, reason string) {
	add(ctx, checkoutAlerts(), 1, attribute.String("reason", reason))
}

var (
	liveConnections   = upDownCounter("holdfast.live.connections", "Live connections of this process.")
	liveSubscriptions = upDownCounter("holdfast.live.subscriptions", "Subscriptions to live channels in this process.")
	liveResyncs       = counter("holdfast.live.resyncs", "Subscriptions to live channels that need a snapshot in place of what they missed, by reason.")
)

// LiveConnected adds delta, 1 or -1, to the live connections of this process,
// under holdfast.live.connections.
func LiveConnected(ctx context.Context, delta int64) {
	addDelta(ctx, liveConnections(), delta)
}

// LiveSubscribed adds delta, 1 or -1, to the subscriptions to live channels in
// this process, under holdfast.live.subscriptions.
func LiveSubscribed(ctx context.Context, delta int64) {
	addDelta(ctx, liveSubscriptions(), delta)
}

// LiveResync counts one subscription that needs a snapshot in place of what it
// missed, under holdfast.live.resyncs with the label reason, a fixed word of
// package live.
func LiveResync(ctx context.Context, reason string) {
	add(ctx, liveResyncs(), 1, attribute.String("reason", reason))
}

var (
	projectionEvents  = counter("holdfast.projection.events", "Events folded into projections.")
	projectionSkipped = counter("holdfast.projection.skipped", "Events that could not be folded into a projection and were left out.")
)

// ProjectionApplied counts n events whose states are committed, under
// holdfast.projection.events with the label projection, a name from the
// program.
func ProjectionApplied(ctx context.Context, projection string, n int) {
	add(ctx, projectionEvents(), n, attribute.String("projection", projection))
}

// ProjectionSkipped counts n events that were left out, under
// holdfast.projection.skipped with the label projection.
func ProjectionSkipped(ctx context.Context, projection string, n int) {
	add(ctx, projectionSkipped(), n, attribute.String("projection", projection))
}
