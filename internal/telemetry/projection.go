package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
)

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
