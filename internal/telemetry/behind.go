package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var behind = sync.OnceValue(func() metric.Int64Counter {
	c, err := otel.Meter(scope).Int64Counter("holdfast.lane.sequence_behind",
		metric.WithDescription("Slots whose low-water mark was ahead of the sequence, and which begin at 0 again."))
	if err != nil {
		otel.Handle(err)
	}
	return c
})

// SequenceBehind counts one slot of the lane whose low-water mark was ahead of the sequence of requests, and was set back to
// 0, under holdfast.lane.sequence_behind with the label lane.
func SequenceBehind(ctx context.Context, lane string) {
	if c := behind(); c.Enabled(ctx) {
		c.Add(ctx, 1, metric.WithAttributes(attribute.String("lane", lane)))
	}
}
