package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var jobSuccesses = counter("holdfast.job.successes", "Passes of a scheduled job that ended without an error.")

// JobSucceeded counts one pass of a scheduled job that ended without an error, under holdfast.job.successes with the
// label pass. The label is not called job, because Prometheus gives every series a label job, which names the process.
// Call it after the pass has committed, also when the pass found nothing to do: an alert watches for the counter
// standing still, so a job that never fails because it never runs is noticed too.
func JobSucceeded(ctx context.Context, job string) {
	if c := jobSuccesses(); c.Enabled(ctx) {
		c.Add(ctx, 1, metric.WithAttributes(attribute.String("pass", job)))
	}
}
