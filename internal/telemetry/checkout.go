package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var checkoutAlerts = counter("holdfast.checkout.alerts", "Checkouts that were paid and do not receive their units, by reason.")

// CheckoutAlert counts one checkout that was paid and does not receive its
// units, under holdfast.checkout.alerts with the label reason, a fixed word of
// package checkouts. Call it after the commit.
func CheckoutAlert(ctx context.Context, reason string) {
	if c := checkoutAlerts(); c.Enabled(ctx) {
		c.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason)))
	}
}
