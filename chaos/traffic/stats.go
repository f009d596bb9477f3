package traffic

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// stats are how the calls were answered, and how long that took.
type stats struct {
	mu    sync.Mutex
	verbs map[string]*verbStats
}

type verbStats struct {
	answers map[string]int
	took    []time.Duration // of a sample, if there are many
	count   int
	worst   time.Duration
}

// sampleMax is how many durations of a verb are kept.
const sampleMax = 200_000

func (s *stats) note(verb string, r *reply, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.verbs[verb]
	if v == nil {
		v = &verbStats{answers: make(map[string]int)}
		if s.verbs == nil {
			s.verbs = make(map[string]*verbStats)
		}
		s.verbs[verb] = v
	}
	answer := strconv.Itoa(r.status)
	switch {
	case r.status == 0:
		answer = "none"
	case r.code != "":
		answer += " " + r.code
	}
	v.answers[answer]++
	v.count++
	v.worst = max(v.worst, took)
	if len(v.took) < sampleMax {
		v.took = append(v.took, took)
	}
}

// VerbReport is how one sort of call fared. Times are those of single attempts, without what a process was dead or frozen.
type VerbReport struct {
	Attempts     int            `json:"attempts"`
	P50MS        float64        `json:"p50_ms"`
	P99MS        float64        `json:"p99_ms"`
	WorstSeconds float64        `json:"worst_seconds"`
	Answers      map[string]int `json:"answers"`
}

// Calls are the sorts of calls.
func (t *Traffic) Calls() map[string]VerbReport {
	t.stats.mu.Lock()
	defer t.stats.mu.Unlock()
	reports := make(map[string]VerbReport)
	for verb, v := range t.stats.verbs {
		slices.Sort(v.took)
		at := func(share float64) float64 {
			return float64(v.took[int(share*float64(len(v.took)-1))].Microseconds()) / 1000
		}
		reports[verb] = VerbReport{Attempts: v.count, P50MS: at(0.5), P99MS: at(0.99), WorstSeconds: v.worst.Seconds(), Answers: maps.Clone(v.answers)}
	}
	return reports
}

// WorstAdd is the longest that an add took to be answered.
func (t *Traffic) WorstAdd() time.Duration {
	t.stats.mu.Lock()
	defer t.stats.mu.Unlock()
	if v := t.stats.verbs[verbAdd]; v != nil {
		return v.worst
	}
	return 0
}

// Recovery is how long it took from the end of a fault until an API that felt it acknowledged an add.
type Recovery struct {
	mu      sync.Mutex
	pending map[string]time.Time // by API, the end of its last fault
	took    []time.Duration
}

// Ended notes that a fault of an API has ended.
func (r *Recovery) Ended(api string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		r.pending = make(map[string]time.Time)
	}
	r.pending[api] = time.Now()
}

// Began notes that an API has a fault: what was not over by now cannot be measured any more.
func (r *Recovery) Began(api string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, api)
}

func (r *Recovery) acked(api string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if end, ok := r.pending[api]; ok && at.After(end) {
		r.took = append(r.took, at.Sub(end))
		delete(r.pending, api)
	}
}

// Sum is how many recoveries were seen whole, with the median and the longest.
func (r *Recovery) Sum() (count int, median, worst time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.took) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(r.took))
	return len(sorted), sorted[len(sorted)/2], sorted[len(sorted)-1]
}
