package traffic

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// Findings are the violations so far. It is safe for concurrent use.
type Findings struct {
	began time.Time

	mu    sync.Mutex
	kinds []*Violation
}

// Violation is a rule that was broken.
type Violation struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	// Samples are the first violations of it, each with the time at which it
	// was found.
	Samples []string `json:"samples"`
}

// samplesMax is the largest number of violations that are kept of a kind.
const samplesMax = 12

// NewFindings makes an empty collection, whose timestamps count from now.
func NewFindings() *Findings { return &Findings{began: time.Now()} }

// Begin restarts the timestamps from now.
func (f *Findings) Begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.began = time.Now()
}

// Add adds a violation of a rule.
func (f *Findings) Add(rule, format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.kinds, func(k *Violation) bool { return k.Name == rule })
	if i < 0 {
		i = len(f.kinds)
		f.kinds = append(f.kinds, &Violation{Name: rule})
	}
	k := f.kinds[i]
	k.Count++
	if len(k.Samples) < samplesMax {
		k.Samples = append(k.Samples, fmt.Sprintf("at %.2fs: ", time.Since(f.began).Seconds())+fmt.Sprintf(format, args...))
	}
}

// Count returns the number of violations.
func (f *Findings) Count() (count int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kinds {
		count += k.Count
	}
	return count
}

// Kinds returns the rules that were broken, in the order of their first
// violations.
func (f *Findings) Kinds() (kinds []Violation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range f.kinds {
		kinds = append(kinds, Violation{k.Name, k.Count, slices.Clone(k.Samples)})
	}
	return kinds
}
