package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// assertHeader fails unless the text is the first line of the JSON, with what
// the figures depend on.
func assertHeader(t *testing.T, text string) {
	t.Helper()
	var h map[string]map[string]any
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	for _, key := range []string{"cpu", "cores", "postgres", "redis", "go", "at", "steal_percent", "fsync_median_ms", "fsync_p99_ms"} {
		if _, ok := h["run"][key]; !ok {
			t.Errorf("the run has no %s: %s", key, text)
		}
	}
	if rate, ok := h["run"]["raw_per_second"].(float64); !ok || rate <= 0 {
		t.Errorf("the raw statement's rate is %v", h["run"]["raw_per_second"])
	}
}

func TestParseCPU(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, stat string
		want       cpuTimes
		ok         bool
	}{
		{"guests are part of user", "cpu  10 2 3 100 4 1 1 9 7 6\ncpu0 1 1 1 1 1 1 1 1 1 1\n", cpuTimes{130, 9}, true},
		{"no guests", "cpu 10 2 3 100 4 1 1 9\n", cpuTimes{130, 9}, true},
		{"no steal", "cpu 10 2 3 100 4 1 1\n", cpuTimes{}, false},
		{"another line", "intr 1 2 3 4 5 6 7 8 9\n", cpuTimes{}, false},
		{"no number", "cpu a 2 3 4 5 6 7 8\n", cpuTimes{}, false},
		{"empty", "", cpuTimes{}, false},
	} {
		if got, ok := parseCPU(c.stat); ok != c.ok || ok && got != c.want {
			t.Errorf("%s: %+v, %t, want %+v, %t", c.name, got, ok, c.want, c.ok)
		}
	}
}

func TestStealSince(t *testing.T) {
	t.Parallel()
	if got := stealSince(cpuTimes{}, false); got != nil {
		t.Errorf("steal of %g %% without an earlier reading", *got)
	}
	if _, ok := readCPU(); !ok {
		return // the system does not report it
	}
	if got := stealSince(cpuTimes{}, true); got == nil || *got < 0 || *got > 100 {
		t.Errorf("steal is %v since the machine started", got)
	}
}

func TestMarkNoisy(t *testing.T) {
	t.Parallel()
	steal := func(percent float64) *float64 { return &percent }
	for _, c := range []struct {
		name    string
		steal   *float64
		measure Measure
		note    string
	}{
		{"quiet", steal(5), Measure{Valid: true, Spread: 0.3}, ""},
		{"steal is unknown", nil, Measure{Valid: true, Spread: 0.3}, ""},
		{"spread", steal(0), Measure{Valid: true, Spread: 0.45}, "noisy: a spread of 45 %"},
		{"steal", steal(5.5), Measure{Valid: true}, "noisy: 5.5 % of the CPU was stolen"},
		{"both", steal(7), Measure{Valid: true, Spread: 0.5}, "noisy: a spread of 50 %; noisy: 7.0 % of the CPU was stolen"},
		{"no figure", steal(7), Measure{Spread: 0.5}, ""},
	} {
		measures := []Measure{c.measure}
		(&host{StealPercent: c.steal}).markNoisy(measures)
		if m := measures[0]; m.Note != c.note || m.Noisy != (c.note != "") {
			t.Errorf("%s: noisy %t, %q, want %q", c.name, m.Noisy, m.Note, c.note)
		}
	}
}

func TestTimeFsyncs(t *testing.T) {
	t.Parallel()
	found, err := timeFsyncsIn(t.TempDir(), fsyncBlocks+2)
	if err != nil || len(found) == 0 || slices.Contains(found, 0) {
		t.Fatalf("the fsyncs were timed as %s, %v", found, err)
	}
	if _, err := timeFsyncsIn("/dev/null/missing", 1); err == nil {
		t.Error("a folder that is not there was written")
	}
}

// A result is printed as it is found: nothing for a measure without a target,
// and with it the reason if a figure means little.
func TestResults(t *testing.T) {
	t.Parallel()
	pass, noisy := newMeasure("hot_vs_naive", "ratio", []float64{100}), newMeasure("hot_vs_naive", "ratio", []float64{1})
	noisy.Noisy = true
	free, loud := newMeasure("ledger_statements", "ratio", []float64{3}), newMeasure("ledger_statements", "ratio", []float64{3})
	loud.Noisy = true
	slow := newMeasure("hot_vs_river", "ratio", []float64{30})
	slow.invalid("invalid: slow")
	measures := []Measure{pass, noisy, free, loud, slow, skipped("hot_vs_redis", "redis-server is not installed")}
	var got []string
	for i := range measures {
		got = append(got, measures[i].result())
	}
	if diff := cmp.Diff([]string{"pass", "MISS, noisy", "", "noisy", "INVALID", "skipped"}, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	text, err := page(options{}, measures, about{})
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"| pass |", "| **MISS, noisy** |", "| **noisy** |", "| **INVALID** |", "| **skipped** |", "CPU steal is not reported"} {
		if !strings.Contains(text, part) {
			t.Errorf("the page has no %s", part)
		}
	}
	if strings.Contains(text, "****") {
		t.Error("the page has an empty result in bold type")
	}
	encoded, err := json.Marshal(measures[5])
	if err != nil || !strings.Contains(string(encoded), `"skipped":"redis-server is not installed"`) {
		t.Errorf("a skipped measure is %s, %v", encoded, err)
	}
}

func TestMissedPeakIsNoted(t *testing.T) {
	t.Parallel()
	for value, want := range map[float64]bool{0.9: false, 1: false, 1.04: true} {
		m := newMeasure("overload_goodput", "ratio", []float64{value})
		m.noteMissedPeak()
		if got := strings.Contains(m.Note, "the peak was missed"); got != want {
			t.Errorf("%g: the note is %q", value, m.Note)
		}
	}
}
