package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

var checkoutAlerts = counter("holdfast.checkout.alerts", "Checkouts that were paid and do not receive their units, by reason.")

var checkoutsAskedLate = counter("holdfast.checkout.asked_late", "Checkouts whose payment service was first called after their deadline.")

// CheckoutAskedLate counts one checkout whose payment service is first called
// after its deadline, under holdfast.checkout.asked_late.
func CheckoutAskedLate(ctx context.Context) {
	if c := checkoutsAskedLate(); c.Enabled(ctx) {
		c.Add(ctx, 1)
	}
}

// CheckoutAlert counts one checkout that was paid and does not receive its
// units, under holdfast.checkout.alerts with the label reason, a fixed word of
// package checkouts. Call it after the commit.
func CheckoutAlert(ctx context.Context, reason string) {
	if c := checkoutAlerts(); c.Enabled(ctx) {
		c.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason)))
	}
}
