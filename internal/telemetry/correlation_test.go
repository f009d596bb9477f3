package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast/holdfast/internal/telemetry"
)

func TestLogHandler(t *testing.T) {
	t.Parallel()
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	traceID, spanID := span.TraceID().String(), span.SpanID().String()
	both := trace.ContextWithSpanContext(telemetry.WithCorrelation(t.Context(), "corr-1"), span)

	for _, tc := range []struct {
		name string
		ctx  context.Context
		with func(*slog.Logger) *slog.Logger
		want map[string]any
	}{
		{"neither", t.Context(), same, map[string]any{}},
		{"correlation", telemetry.WithCorrelation(t.Context(), "corr-1"), same, map[string]any{"correlation_id": "corr-1"}},
		{"hidden", telemetry.WithCorrelation(both, ""), same, map[string]any{"trace_id": traceID, "span_id": spanID, "trace_sampled": false}},
		{"both", both, same, map[string]any{"correlation_id": "corr-1", "trace_id": traceID, "span_id": spanID, "trace_sampled": false}},
		{
			"with attributes", both, func(l *slog.Logger) *slog.Logger { return l.With("lane", "hot") },
			map[string]any{"lane": "hot", "correlation_id": "corr-1", "trace_id": traceID, "span_id": spanID, "trace_sampled": false},
		},
		{
			"in a group", telemetry.WithCorrelation(t.Context(), "corr-1"), func(l *slog.Logger) *slog.Logger { return l.WithGroup("drain") },
			map[string]any{"drain": map[string]any{"correlation_id": "corr-1"}},
		},
	} {
		var out bytes.Buffer
		inner := slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: dropBuiltIn})
		tc.with(slog.New(telemetry.LogHandler(inner))).InfoContext(tc.ctx, "decided")
		got := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v in %s", tc.name, err, out.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func same(l *slog.Logger) *slog.Logger { return l }

func dropBuiltIn(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
		return slog.Attr{}
	}
	return a
}

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

// Malformed trace parents are left out, and the number of links is bounded.
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
