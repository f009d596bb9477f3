package testkit

import (
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// metrics reads the counters of all tests of the process, from the first call
// on.
var metrics = sync.OnceValue(func() *metric.ManualReader {
	reader := metric.NewManualReader()
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	return reader
})

// Counted returns the value of a counter, summed over the points that have all
// the labels. The counters of the process begin at 0 with the first call, so
// compare with an earlier value.
func Counted(t testing.TB, name string, labels map[string]string) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := metrics().Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if m.Name != name || !ok {
				continue
			}
			for _, point := range sum.DataPoints {
				matches := true
				for _, kv := range point.Attributes.ToSlice() {
					want, asked := labels[string(kv.Key)]
					matches = matches && (!asked || want == kv.Value.AsString())
				}
				if matches {
					n += point.Value
				}
			}
		}
	}
	return n
}
