package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var jobSuccesses = sync.OnceValue(func() metric.Int64Counter {
	c, err := otel.Meter(scope).Int64Counter("holdfast.job.successes",
		metric.WithDescription("Passes of a scheduled job that ended without an error."))
	if err != nil {
		otel.Handle(err)
	}
	return c
})

// JobSucceeded counts one pass of a scheduled job that ended without an error, under holdfast.job.successes with the
// label job. Call it after the pass has committed, also when the pass found nothing to do: an alert watches for the
// counter standing still, so a job that never fails because it never runs is noticed too.
func JobSucceeded(ctx context.Context, job string) {
	if c := jobSuccesses(); c.Enabled(ctx) {
		c.Add(ctx, 1, metric.WithAttributes(attribute.String("job", job)))
	}
}
