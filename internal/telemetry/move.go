package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var moves = sync.OnceValue(func() metric.Int64Counter {
	c, err := otel.Meter(scope).Int64Counter("holdfast.lane.moves",
		metric.WithDescription("Variants that were promoted or demoted by themselves, and tenants that were diverted or let back."))
	if err != nil {
		otel.Handle(err)
	}
	return c
})

// Moved counts n moves between the lanes that were committed, under holdfast.lane.moves with the label action, one of the
// fixed words of package hot.
func Moved(ctx context.Context, action string, n int) {
	if c := moves(); n > 0 && c.Enabled(ctx) {
		c.Add(ctx, int64(n), metric.WithAttributes(attribute.String("action", action)))
	}
}
