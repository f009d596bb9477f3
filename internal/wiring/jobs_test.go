package wiring

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/internal/queues"
)

// The kinds of River jobs are stored in rows, and workers of an earlier release
// know these two. The pass of each worker is no job.
func TestPasses(t *testing.T) {
	t.Parallel()
	m, err := NewMaintenance(nil, MaintenanceConfig{
		Log: slog.New(slog.DiscardHandler), Sweep: river.PeriodicInterval(time.Second), Purge: river.PeriodicInterval(time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	passes := m.Passes()
	var kinds []string
	for _, pass := range passes.Scheduled() {
		kinds = append(kinds, passArgs{pass.Name}.Kind())
	}
	if !slices.Equal(kinds, []string{"holdfast_sweep", "holdfast_purge"}) {
		t.Errorf("the scheduled kinds are %q", kinds)
	}
	for _, pass := range passes.Table {
		if (pass.Every > 0) != (pass.Name == "recover") || (pass.Every > 0) == (pass.Schedule != nil) {
			t.Errorf("%s is %+v", pass.Name, pass)
		}
	}
	for ticker, want := range map[bool]int{false: len(kinds), true: 0} {
		c := queues.WorkerConfig{Workers: river.NewWorkers()}
		register(passes, &c, ticker)
		if got := len(c.PeriodicJobs); got != want {
			t.Errorf("ticker %t: %d periodic jobs, want %d", ticker, got, want)
		}
	}
}
