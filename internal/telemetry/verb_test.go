package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// The providers that the tests read, and the allocations of a verb before they
// were set.
var (
	spans              = tracetest.NewSpanRecorder()
	metrics            = metric.NewManualReader()
	allocsUnconfigured float64
)

func TestMain(m *testing.M) {
	allocsUnconfigured = testing.AllocsPerRun(100, func() {
		_, done := telemetry.Verb(context.Background(), "test.unconfigured")
		done("held", nil)
	})
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(metrics)))
	os.Exit(m.Run())
}

func TestVerbCostsLittleUnconfigured(t *testing.T) {
	t.Parallel()
	if allocsUnconfigured > 6 {
		t.Errorf("a verb without a configured SDK allocates %v times, want at most 6", allocsUnconfigured)
	}
}

func TestVerb(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	for _, tc := range []struct {
		verb, outcome string
		err           error
		want          string
		status        codes.Code
	}{
		{"test.ok", "", nil, "ok", codes.Unset},
		{"test.sold_out", "out_of_stock", nil, "out_of_stock", codes.Unset},
		{"test.failed", "", lost, "error", codes.Error},
		{"test.failed_so", "retry", lost, "retry", codes.Error},
	} {
		tc.verb = unique(tc.verb)
		ctx := telemetry.WithCorrelation(t.Context(), "corr-"+tc.verb)
		_, done := telemetry.Verb(ctx, tc.verb)
		done(tc.outcome, tc.err)
		done("a second call", errors.New("does nothing"))

		span := spanOf(t, tc.verb)
		if span.Status().Code != tc.status {
			t.Errorf("%s: span status %v, want %v", tc.verb, span.Status().Code, tc.status)
		}
		want := map[string]string{"correlation_id": "corr-" + tc.verb, "outcome": tc.want}
		if diff := cmp.Diff(want, attributes(span.Attributes())); diff != "" {
			t.Errorf("%s: span attributes (-want +got):\n%s", tc.verb, diff)
		}
		if got := recorded(t, tc.verb); len(got) != 1 || got[tc.want] != 1 {
			t.Errorf("%s: recorded %v, want one value under %q", tc.verb, got, tc.want)
		}
	}
}

func TestVerbNests(t *testing.T) {
	t.Parallel()
	outerVerb, innerVerb := unique("test.outer"), unique("test.inner")
	ctx, outer := telemetry.Verb(t.Context(), outerVerb)
	_, inner := telemetry.Verb(ctx, innerVerb)
	inner("", nil)
	outer("", nil)
	if parent := spanOf(t, innerVerb).Parent().SpanID(); parent != spanOf(t, outerVerb).SpanContext().SpanID() {
		t.Errorf("the inner span's parent is %v, want the outer span", parent)
	}
}

func TestJobSucceeded(t *testing.T) {
	t.Parallel()
	job := unique("test_sweep")
	telemetry.JobSucceeded(t.Context(), job)
	telemetry.JobSucceeded(t.Context(), job)
	sum, ok := collect(t, "holdfast.job.successes").(metricdata.Sum[int64])
	if !ok || !sum.IsMonotonic {
		t.Fatalf("counted in %+v, want a counter", sum)
	}
	for _, point := range sum.DataPoints {
		if attributes(point.Attributes.ToSlice())["pass"] == job && point.Value == 2 {
			return
		}
	}
	t.Errorf("counted %+v, want 2 for %s", sum.DataPoints, job)
}

func TestRefused(t *testing.T) {
	t.Parallel()
	reason := unique("test_depth")
	telemetry.Refused(t.Context(), reason, true)
	telemetry.Refused(t.Context(), reason, true)
	telemetry.Refused(t.Context(), reason, false)
	sum, ok := collect(t, "holdfast.admission.refusals").(metricdata.Sum[int64])
	if !ok || !sum.IsMonotonic {
		t.Fatalf("counted in %+v, want a counter", sum)
	}
	got := map[string]int64{}
	for _, point := range sum.DataPoints {
		if labels := attributes(point.Attributes.ToSlice()); labels["reason"] == reason {
			got[labels["whose"]] = point.Value
		}
	}
	if diff := cmp.Diff(map[string]int64{"tenant": 2, "all": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// BenchmarkVerb measures a verb whose span and histogram are recorded.
func BenchmarkVerb(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, done := telemetry.Verb(b.Context(), "test.benchmark")
		done("held", nil)
	}
}

var drawn atomic.Int64

// unique returns a name that no other run in this process has used, because the
// global providers keep what they recorded.
func unique(name string) string { return fmt.Sprintf("%s.%d", name, drawn.Add(1)) }

func spanOf(t *testing.T, name string) trace.ReadOnlySpan {
	t.Helper()
	for _, s := range spans.Ended() {
		if s.Name() == name {
			return s
		}
	}
	t.Fatalf("no span %s ended", name)
	return nil
}

// recorded returns how many values the histogram has for verb, by outcome.
func recorded(t *testing.T, verb string) map[string]uint64 {
	t.Helper()
	histogram, ok := collect(t, "holdfast.verb.duration").(metricdata.Histogram[float64])
	if !ok {
		t.Fatal("holdfast.verb.duration is not a histogram")
	}
	counts := map[string]uint64{}
	for _, point := range histogram.DataPoints {
		labels := attributes(point.Attributes.ToSlice())
		if labels["verb"] == verb && len(labels) == 2 {
			counts[labels["outcome"]] += point.Count
		}
	}
	return counts
}

func collect(t *testing.T, name string) metricdata.Aggregation {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := metrics.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				return m.Data
			}
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}

func attributes(set []attribute.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range set {
		m[string(kv.Key)] = kv.Value.AsString()
	}
	return m
}
