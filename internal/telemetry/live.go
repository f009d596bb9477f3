package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
)

var (
	liveConnections   = upDownCounter("holdfast.live.connections", "Live connections of this process.")
	liveSubscriptions = upDownCounter("holdfast.live.subscriptions", "Subscriptions to live channels in this process.")
	liveResyncs       = counter("holdfast.live.resyncs", "Subscriptions to live channels that need a snapshot in place of what they missed, by reason.")
)

// LiveConnected adds delta, 1 or -1, to the live connections of this process,
// under holdfast.live.connections.
func LiveConnected(ctx context.Context, delta int64) {
	if c := liveConnections(); c.Enabled(ctx) {
		c.Add(ctx, delta)
	}
}

// LiveSubscribed adds delta, 1 or -1, to the subscriptions to live channels in
// this process, under holdfast.live.subscriptions.
func LiveSubscribed(ctx context.Context, delta int64) {
	if c := liveSubscriptions(); c.Enabled(ctx) {
		c.Add(ctx, delta)
	}
}

// LiveResync counts one subscription that needs a snapshot in place of what it
// missed, under holdfast.live.resyncs with the label reason, a fixed word of
// package live.
func LiveResync(ctx context.Context, reason string) {
	add(ctx, liveResyncs(), 1, attribute.String("reason", reason))
}
