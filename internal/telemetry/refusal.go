package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var refusals = sync.OnceValue(func() metric.Int64Counter {
	c, err := otel.Meter(scope).Int64Counter("holdfast.admission.refusals",
		metric.WithDescription("Requests refused before anything was queued, by the reason and whose backlog it was."))
	if err != nil {
		otel.Handle(err)
	}
	return c
})

// Refused counts one request that was refused, because too much waits or at the turnstile, under
// holdfast.admission.refusals with the labels reason, one of the fixed words of package requests, and whose: "tenant" for its
// own backlog or fault, "all" for everybody's.
func Refused(ctx context.Context, reason string, own bool) {
	if c := refusals(); c.Enabled(ctx) {
		whose := "all"
		if own {
			whose = "tenant"
		}
		c.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason), attribute.String("whose", whose)))
	}
}
