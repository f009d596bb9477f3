package telemetry_test

import (
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast/holdfast/internal/telemetry"
)

func inSpan(t *testing.T, flags trace.TraceFlags) context.Context {
	t.Helper()
	return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags,
	}))
}

func TestTraceParent(t *testing.T) {
	t.Parallel()
	if got, want := telemetry.TraceParent(inSpan(t, trace.FlagsSampled)), "00-01000000000000000000000000000000-0200000000000000-01"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, ctx := range map[string]context.Context{"no span": t.Context(), "not sampled": inSpan(t, 0)} {
		if got := telemetry.TraceParent(ctx); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// Malformed trace parents are left out, and a span has no more links than it keeps.
func TestLinks(t *testing.T) {
	t.Parallel()
	var links telemetry.Links
	for _, malformed := range []string{"", "x", "00-00000000000000000000000000000000-0200000000000000-01", strings.Repeat("0", 55)} {
		links.Add(malformed)
	}
	for range 200 {
		links.Add(telemetry.TraceParent(inSpan(t, trace.FlagsSampled)))
	}
	name := unique("linked")
	ctx, span := otel.Tracer("test").Start(t.Context(), name)
	links.To(ctx)
	span.End()
	links.To(t.Context()) // no span: nothing to do
	if n := len(spanOf(t, name).Links()); n != 128 {
		t.Errorf("%d links, want 128", n)
	}
}
