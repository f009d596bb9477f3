package boot

import (
	"slices"
	"testing"

	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/queues"
)

// The table is used by oneshot, the schedule and the ticker. The kinds of River
// jobs are stored in rows, and workers of an earlier release know these two.
func TestPasses(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sweep", "drain", "recover", "purge", "verify", "migrate"} {
		if pass := PassNamed(name); pass == nil || pass.Once == nil || (pass.schedule == nil && pass.every == 0) != (pass.inWorker == nil) {
			t.Errorf("%s is %+v", name, pass)
		}
	}
	if len(Passes) != 6 || PassNamed("sweeps") != nil {
		t.Errorf("there are %d passes: %s", len(Passes), PassNames())
	}
	var kinds []string
	passes := (&maintenance{config: &config.Config{}}).passes()
	for _, pass := range passes.Scheduled() {
		kinds = append(kinds, passArgs{pass.Name}.Kind())
	}
	if !slices.Equal(kinds, []string{"holdfast_sweep", "holdfast_purge"}) {
		t.Errorf("the scheduled kinds are %q", kinds)
	}
	for _, pass := range Passes { // a pass of each worker is no job of River
		if pass.every > 0 && (pass.schedule != nil || pass.Name != "recover") {
			t.Errorf("%s is %+v", pass.Name, pass)
		}
	}
	for _, ticker := range []bool{false, true} {
		c := queues.WorkerConfig{Workers: river.NewWorkers()}
		register(passes, &c, ticker)
		want := len(kinds)
		if ticker {
			want = 0
		}
		if got := len(c.PeriodicJobs); got != want {
			t.Errorf("ticker %t: %d periodic jobs, want %d", ticker, got, want)
		}
	}
}
