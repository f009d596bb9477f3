package stage_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/chaos/stage"
)

// The same seed gives the same plan, another seed another plan.
func TestPlanIsRepeatable(t *testing.T) {
	t.Parallel()
	plan := stage.Plan(7, time.Minute)
	if diff := cmp.Diff(plan, stage.Plan(7, time.Minute)); diff != "" {
		t.Errorf("the same seed, another plan:\n%s", diff)
	}
	if cmp.Equal(plan, stage.Plan(8, time.Minute)) {
		t.Error("another seed, the same plan")
	}
}

// Every kind of fault occurs in a short storm. All faults end within their
// storm, and they are in order.
func TestPlanCoversEveryKind(t *testing.T) {
	t.Parallel()
	kinds := []stage.Kind{
		stage.Kill, stage.Stop, stage.Freeze, stage.CutBefore, stage.CutMidway, stage.CutUnheard, stage.Swallow, stage.Reset,
		stage.Silence, stage.Slow, stage.RestartFast, stage.RestartCrash, stage.KillBackend, stage.EndSessions, stage.LockStock, stage.LockRows,
		stage.Sweeps,
	}
	for seed := range uint64(50) {
		seen := map[stage.Kind]bool{}
		last := time.Duration(0)
		for _, f := range stage.Plan(seed, time.Minute) {
			seen[f.Kind] = true
			if f.At < last || f.At+f.For > time.Minute {
				t.Errorf("seed %d: %s comes after %s, or outlasts the storm", seed, f, last)
			}
			last = f.At
		}
		for _, k := range kinds {
			if !seen[k] {
				t.Errorf("seed %d: no %s in a minute", seed, k)
			}
		}
	}
}

// A target has at most one fault at a time.
func TestPlanGivesATargetOneFaultAtATime(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		until := map[string]time.Duration{}
		for _, f := range stage.Plan(seed, 5*time.Minute) {
			key := f.Target
			switch {
			case f.Kind.OnWire():
				key = "wire " + key
			case f.Kind.OnRows(), f.Kind == stage.Sweeps:
				key = string(f.Kind)
			}
			if f.At < until[key] {
				t.Errorf("seed %d: %s while another lasts", seed, f)
			}
			until[key] = f.At + f.For
		}
	}
}

func TestTimelineKnowsWhatLastsAndWhatJustEnded(t *testing.T) {
	t.Parallel()
	var line stage.Timeline
	before := time.Now()
	end := line.Begin(stage.Fault{Kind: stage.Freeze, Target: "api-1"})
	during := time.Now()
	seen := func(at time.Time, after time.Duration) bool {
		return line.Any(at, after, func(w stage.Window) bool { return w.Kind == stage.Freeze })
	}
	if !seen(during, 0) || seen(before.Add(-time.Second), time.Minute) {
		t.Error("a fault is not reported while it lasts, or is reported before it began")
	}
	end()
	after := time.Now().Add(time.Second)
	if seen(after, 500*time.Millisecond) || !seen(after, 2*time.Second) {
		t.Error("a fault that ended is reported for too long, or not long enough")
	}
	if line.Any(during, time.Hour, func(w stage.Window) bool { return w.Kind == stage.Kill }) {
		t.Error("a fault was reported that did not take place")
	}
}

// An upgrade migrates first. From the middle on it replaces each program once,
// before it ends.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{10 * time.Second, time.Minute, time.Hour} {
		plan := stage.Upgrade(length)
		first := plan[0]
		if first.Kind != stage.Migrate || first.For < time.Second || first.For > 10*time.Second || first.At+first.For >= length/2 || first.Hits("api-1") {
			t.Errorf("%s: %s", length, first)
		}
		var replaced []string
		for _, f := range plan[1:] {
			replaced = append(replaced, f.Target)
			if f.Kind != stage.Stop || f.At < length/2 || f.At > length*3/4 {
				t.Errorf("%s: %s", length, f)
			}
		}
		if diff := cmp.Diff([]string{"api-1", "worker-1", "api-2", "worker-2"}, replaced); diff != "" {
			t.Errorf("%s: replaced (-want +got):\n%s", length, diff)
		}
	}
}
