package traffic

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// phases are the parts of a run that are measured separately. The first is the
// whole run. It is safe for concurrent use.
type phases struct {
	mu   sync.Mutex
	list []*phase
}

type phase struct {
	name      string
	began     time.Time
	ended     time.Time // zero while it lasts
	replacing bool
	adds      int
	took      []time.Duration // of the first sampleMax adds
	worst     time.Duration
	attempts  int
	unserved  map[string]int
}

// Phase begins a part of the run that is measured separately, and ends the one
// before. replacing means that programs are replaced in it, so that some
// attempts may be refused.
func (t *Traffic) Phase(name string, replacing bool) {
	t.phases.mu.Lock()
	defer t.phases.mu.Unlock()
	now := time.Now()
	if len(t.phases.list) == 0 {
		t.phases.list = append(t.phases.list, &phase{name: "all", began: now, unserved: make(map[string]int)})
	} else {
		t.phases.list[len(t.phases.list)-1].ended = now
	}
	t.phases.list = append(t.phases.list, &phase{name: name, began: now, replacing: replacing, unserved: make(map[string]int)})
}

// present returns the index of the current phase.
func (p *phases) present() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.list) - 1
}

// note counts an attempt in each phase from the first, an index, to the current
// one. An attempt that was not served counts as such in the whole run and in
// one phase: the one in which programs were replaced, if that is among them,
// else the last.
func (p *phases) note(first int, verb string, r *reply, took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if first < 1 { // it began before the first phase
		return
	}
	lasted := append([]*phase{p.list[0]}, p.list[first:]...)
	blamed := lasted[len(lasted)-1]
	for _, in := range lasted {
		in.attempts++
		if in.replacing {
			blamed = in
		}
		if verb == verbAdd {
			in.add(took)
		}
	}
	if r.status == 0 || r.status == http.StatusTooManyRequests || r.status >= http.StatusInternalServerError {
		answer := verb + " " + strconv.Itoa(r.status) + " " + r.code
		p.list[0].unserved[answer]++
		blamed.unserved[answer]++
	}
}

func (p *phase) add(took time.Duration) {
	p.adds++
	p.worst = max(p.worst, took)
	if len(p.took) < sampleMax {
		p.took = append(p.took, took)
	}
}

// PhaseReport has the figures of a phase. Times are those of adds until their
// answer, including the time that they asked to wait for the outcome.
type PhaseReport struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	// Replacing means that programs were replaced in the phase.
	Replacing bool    `json:"replacing,omitempty"`
	Adds      int     `json:"adds"`
	P50MS     float64 `json:"p50_ms"`
	P99MS     float64 `json:"p99_ms"`
	MaxMS     float64 `json:"max_ms"`
	// Attempts counts calls of all verbs. Unserved counts those without an
	// answer (0), and those answered 429 or 5xx.
	Attempts int            `json:"attempts"`
	Unserved map[string]int `json:"unserved"`
}

// Phases returns the reports of the whole run and of its phases, in order, or
// none without phases.
func (t *Traffic) Phases() (reports []PhaseReport) {
	t.phases.mu.Lock()
	defer t.phases.mu.Unlock()
	for _, p := range t.phases.list {
		slices.Sort(p.took)
		at := func(share float64) float64 {
			if len(p.took) == 0 {
				return 0
			}
			return milliseconds(p.took[int(share*float64(len(p.took)-1))])
		}
		ended := p.ended
		if ended.IsZero() {
			ended = time.Now()
		}
		reports = append(reports, PhaseReport{
			Name: p.name, Seconds: ended.Sub(p.began).Seconds(), Replacing: p.replacing, Adds: p.adds, P50MS: at(0.5), P99MS: at(0.99),
			MaxMS: milliseconds(p.worst), Attempts: p.attempts, Unserved: p.unserved,
		})
	}
	return reports
}

// EndPhases ends the last phase.
func (t *Traffic) EndPhases() {
	t.phases.mu.Lock()
	defer t.phases.mu.Unlock()
	if n := len(t.phases.list); n > 0 {
		t.phases.list[0].ended = time.Now()
		t.phases.list[n-1].ended = t.phases.list[0].ended
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
