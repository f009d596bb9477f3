package telemetry

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var stopped = sync.OnceValue(func() metric.Int64UpDownCounter {
	c, err := otel.Meter(scope).Int64UpDownCounter("holdfast.lane.stopped",
		metric.WithDescription("Slots of this process that decide nothing, because every request of theirs fails with one error."))
	if err != nil {
		otel.Handle(err)
	}
	return c
})

// SlotStopped adds delta, 1 or -1, to the slots of the lane that this process has stopped because every request failed with
// one error, under holdfast.lane.stopped with the label lane.
func SlotStopped(ctx context.Context, lane string, delta int64) {
	if c := stopped(); c.Enabled(ctx) {
		c.Add(ctx, delta, metric.WithAttributes(attribute.String("lane", lane)))
	}
}
