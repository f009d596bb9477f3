package telemetry

import "context"

type correlationKey struct{}

// WithCorrelation returns a context that carries id, the name under which one call is found again in the audit log, the
// logs and the traces. An empty id hides the one the context already carries.
func WithCorrelation(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, correlationKey{}, id)
}

// Correlation returns the correlation id that ctx carries, or "" if it carries none.
func Correlation(ctx context.Context) string {
	id, _ := ctx.Value(correlationKey{}).(string)
	return id
}
