package telemetry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast/holdfast/internal/telemetry"
)

func TestMoved(t *testing.T) {
	t.Parallel()
	action := unique("test_moved")
	telemetry.Moved(t.Context(), action, 2)
	telemetry.Moved(t.Context(), action, 0)
	telemetry.Moved(t.Context(), action, 1)
	sum, ok := collect(t, "holdfast.lane.moves").(metricdata.Sum[int64])
	if !ok || !sum.IsMonotonic {
		t.Fatalf("counted in %+v, want a counter", sum)
	}
	for _, point := range sum.DataPoints {
		if attributes(point.Attributes.ToSlice())["action"] == action && point.Value == 3 {
			return
		}
	}
	t.Errorf("counted %+v, want 3 for %s", sum.DataPoints, action)
}

// Connections and subscriptions decrease again; resyncs are counted by reason.
func TestLive(t *testing.T) {
	t.Parallel()
	reason := unique("test_slow")
	for _, delta := range []int64{1, 1, -1} {
		telemetry.LiveConnected(t.Context(), delta)
		telemetry.LiveSubscribed(t.Context(), 2*delta)
	}
	telemetry.LiveResync(t.Context(), reason)
	telemetry.LiveResync(t.Context(), reason)
	got := map[string]int64{}
	for _, name := range []string{"holdfast.live.connections", "holdfast.live.subscriptions", "holdfast.live.resyncs"} {
		sum, ok := collect(t, name).(metricdata.Sum[int64])
		if !ok || sum.IsMonotonic != (name == "holdfast.live.resyncs") {
			t.Fatalf("%s is in %+v", name, sum)
		}
		for _, point := range sum.DataPoints {
			got[name+attributes(point.Attributes.ToSlice())["reason"]] = point.Value
		}
	}
	want := map[string]int64{"holdfast.live.connections": 1, "holdfast.live.subscriptions": 2, "holdfast.live.resyncs" + reason: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What is counted in a cell has its name, and what is counted elsewhere has none.
func TestCellLabel(t *testing.T) {
	t.Parallel()
	action, verb := unique("test_cell"), unique("test.cell")
	for n, cell := range []string{"", "eu", "us"} {
		ctx := telemetry.WithCell(t.Context(), cell)
		telemetry.Moved(ctx, action, n+1)
		_, done := telemetry.Verb(ctx, verb)
		done("", nil)
	}
	moved := map[string]int64{}
	for _, point := range collect(t, "holdfast.lane.moves").(metricdata.Sum[int64]).DataPoints {
		if of := attributes(point.Attributes.ToSlice()); of["action"] == action {
			moved[of["cell"]] = point.Value
		}
	}
	if diff := cmp.Diff(map[string]int64{"": 1, "eu": 2, "us": 3}, moved); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	timed := map[string]uint64{}
	for _, point := range collect(t, "holdfast.verb.duration").(metricdata.Histogram[float64]).DataPoints {
		if of := attributes(point.Attributes.ToSlice()); of["verb"] == verb {
			timed[of["cell"]] = point.Count
		}
	}
	if diff := cmp.Diff(map[string]uint64{"": 1, "eu": 1, "us": 1}, timed); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
