package telemetry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// The gauges have the values that read returns, and are absent without a state.
func TestObserve(t *testing.T) { //nolint:paralleltest // one state for the process
	state, known := telemetry.State{
		Lanes:           []telemetry.LaneState{{Lane: "hot", Depth: 7, OldestAgeSeconds: 1.5, Paused: true}, {Lane: "normal"}},
		HotVariants:     map[string]int64{"hot": 3},
		SweepLagSeconds: 9,
		Subscriptions:   []telemetry.SubscriptionState{{Name: "mail", Lag: 4, LagSeconds: 2}},
	}, true
	if err := telemetry.Observe(func() (telemetry.State, bool) { return state, known }); err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]float64{
		"holdfast.lane.depth":      {"hot": 7, "normal": 0},
		"holdfast.lane.oldest_age": {"hot": 1.5, "normal": 0},
		"holdfast.lane.paused":     {"hot": 1, "normal": 0},
		"holdfast.hot.variants":    {"entering": 0, "hot": 3, "leaving": 0},
		"holdfast.sweep.lag":       {"": 9},
		"holdfast.audit.lag":       {"mail": 4},
		"holdfast.audit.lag_age":   {"mail": 2},
	}
	for name, values := range want {
		g, ok := collect(t, name).(metricdata.Gauge[float64])
		if !ok {
			t.Fatalf("%s is not a gauge", name)
		}
		got := map[string]float64{}
		for _, point := range g.DataPoints {
			label := ""
			for _, kv := range point.Attributes.ToSlice() {
				label = kv.Value.AsString()
			}
			got[label] = point.Value
		}
		if diff := cmp.Diff(values, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	known = false
	var all metricdata.ResourceMetrics
	if err := metrics.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if want[m.Name] != nil {
				t.Errorf("%s is shown although the state is not known", m.Name)
			}
		}
	}
}
