package traffic

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"
)

// stats are the answers of the calls, and their latencies.
type stats struct {
	mu    sync.Mutex
	verbs map[string]*verbStats
}

type verbStats struct {
	answers map[string]int
	took    []time.Duration // a sample of the durations, if there are many
	count   int
	worst   time.Duration
}

// sampleMax is the largest number of durations that are kept of a verb.
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

// VerbReport has the figures of one verb. Times are those of single attempts,
// without the time in which a process was dead or frozen.
type VerbReport struct {
	Attempts     int            `json:"attempts"`
	P50MS        float64        `json:"p50_ms"`
	P99MS        float64        `json:"p99_ms"`
	WorstSeconds float64        `json:"worst_seconds"`
	Answers      map[string]int `json:"answers"`
}

// Calls returns the figures of each verb.
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

// WorstAdd returns the longest time that the answer to an add took.
func (t *Traffic) WorstAdd() time.Duration {
	t.stats.mu.Lock()
	defer t.stats.mu.Unlock()
	if v := t.stats.verbs[verbAdd]; v != nil {
		return v.worst
	}
	return 0
}

// Recovery measures the time from the end of a fault until an API that it
// affected acknowledged an add.
type Recovery struct {
	mu      sync.Mutex
	pending map[string]time.Time // by API, the end of its last fault
	took    []time.Duration
}

// Ended records that a fault of an API has ended.
func (r *Recovery) Ended(api string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		r.pending = make(map[string]time.Time)
	}
	r.pending[api] = time.Now()
}

// Began records that a fault of an API has begun. A recovery that has not ended
// by then is not measured.
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

// Sum returns the number of complete recoveries, with the median and the
// longest.
func (r *Recovery) Sum() (count int, median, worst time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.took) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(r.took))
	return len(sorted), sorted[len(sorted)/2], sorted[len(sorted)-1]
}
