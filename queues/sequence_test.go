package queues_test

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// metrics is what all tests of the package count.
var metrics = metric.NewManualReader()

func TestMain(m *testing.M) {
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(metrics)))
	os.Exit(m.Run())
}

// counted is the value of a counter, summed over the points that have all the labels.
func counted(t *testing.T, name string, labels map[string]string) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := metrics.Collect(t.Context(), &all); err != nil {
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

// The rows were copied without their sequence, which draws numbers below the mark: what is admitted is decided all the same,
// and so is what was queued before. It is logged and counted once for the slot.
func TestSequenceBehindTheMark(t *testing.T) {
	t.Parallel()
	lanes := map[string]lanetest.NewLane{requests.Hot: hot.NewLane, requests.Normal: normal.NewLane}
	t.Run("decides and logs", func(t *testing.T) {
		for name, newLane := range lanes {
			for _, column := range []string{"low_water", "next_low_water"} {
				t.Run(name+" "+column, func(t *testing.T) {
					t.Parallel()
					sequenceBehind(t, name, newLane, column)
				})
			}
		}
	})
	for name := range lanes {
		if n := counted(t, "holdfast.lane.sequence_behind", map[string]string{"lane": name}); n != 2 {
			t.Errorf("%s: counted %d, want one for each mark", name, n)
		}
	}
}

func sequenceBehind(t *testing.T, name string, newLane lanetest.NewLane, column string) {
	b := lanetest.New(t, name, newLane)
	b.Stock("shoe", 1000)
	b.Tick(b.Lane(queues.LaneConfig{}))
	before := b.Submit("before", "shoe", 1)
	b.Exec(`UPDATE lane_slots SET `+column+` = 100000, next_horizon = pg_snapshot_xmin(pg_current_snapshot()) WHERE lane = $1 AND slot = $2`, name, before.Slot)
	b.Int(`SELECT setval('reservation_requests_sequence_seq', 1)`)
	late := b.Submit("late", "shoe", 1)

	var said bytes.Buffer
	lane := b.LoggedLane(slog.New(slog.NewTextHandler(&said, nil)), queues.LaneConfig{Concurrency: 1})
	for range 3 {
		b.Tick(lane)
	}
	b.Want(before, requests.Done, "")
	b.Want(late, requests.Done, "")
	if n := strings.Count(said.String(), "level=ERROR"); n != 1 || !strings.Contains(said.String(), "mark=100000") {
		t.Errorf("%d errors logged, want one with the mark:\n%s", n, said.String())
	}
	// the mark moves on with the sequence
	const markSQL = `SELECT low_water FROM lane_slots WHERE lane = $1 AND slot = $2`
	for deadline := time.Now().Add(30 * time.Second); b.Int(markSQL, name, late.Slot) < late.Sequence; {
		if time.Now().After(deadline) {
			t.Fatal("the mark does not move")
		}
		b.Submit("after", "shoe", 1)
		b.Tick(lane)
	}
	if n := b.Int(markSQL, name, late.Slot); n >= 100000 {
		t.Errorf("the mark is %d, past what was drawn", n)
	}
	b.Sound()
}
