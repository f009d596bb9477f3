package telemetry_test

import (
	"testing"

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
