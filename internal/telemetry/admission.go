package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var (
	admitted = counter("holdfast.admission.requests", "Requests admitted, without repetitions.")
	groups   = sizes("holdfast.admission.group_size", "Requests admitted in one transaction.")
	refusals = counter("holdfast.admission.refusals", "Requests refused before anything was queued, by the reason and whose backlog it was.")
)

// Admitted counts n requests that one transaction admitted to a lane, under holdfast.admission.requests with the label
// lane. Call it after the commit.
func Admitted(ctx context.Context, lane string, n int) {
	if c := admitted(); n > 0 && c.Enabled(ctx) {
		c.Add(ctx, int64(n), metric.WithAttributes(attribute.String("lane", lane)))
	}
}

// AdmittedGroup records the number of callers whose requests one transaction admitted, under holdfast.admission.group_size.
func AdmittedGroup(ctx context.Context, n int) {
	if h := groups(); h.Enabled(ctx) {
		h.Record(ctx, int64(n))
	}
}

// Refused counts one request that was refused, because too much waits or at the turnstile, under
// holdfast.admission.refusals with the labels reason, one of the fixed words of package requests, and whose: "tenant" for its
// own backlog or fault, "all" for that of all tenants.
func Refused(ctx context.Context, reason string, own bool) {
	if c := refusals(); c.Enabled(ctx) {
		whose := "all"
		if own {
			whose = "tenant"
		}
		c.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason), attribute.String("whose", whose)))
	}
}

var (
	verbGroups = sizes("holdfast.verbs.group_size", "Calls of verbs that finish at once decided in one transaction.")
	verbsAlone = counter("holdfast.verbs.alone", "Calls of verbs that finish at once which left their group, to be made in a transaction of their own.")
)

// VerbGroup records the number of calls that one transaction decided, under holdfast.verbs.group_size.
func VerbGroup(ctx context.Context, n int) {
	if h := verbGroups(); n > 0 && h.Enabled(ctx) {
		h.Record(ctx, int64(n))
	}
}

// VerbsAlone counts n calls that left their group, under holdfast.verbs.alone.
func VerbsAlone(ctx context.Context, n int) {
	if c := verbsAlone(); n > 0 && c.Enabled(ctx) {
		c.Add(ctx, int64(n))
	}
}
