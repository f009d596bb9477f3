package stage

import (
	"sync"
	"time"
)

// Timeline records which faults took place, and when. It is safe for concurrent
// use.
type Timeline struct {
	mu      sync.Mutex
	windows []Window
}

// Window is a fault that took place. End is zero while it lasts.
type Window struct {
	Fault
	Begin, End time.Time
}

// Begin records that a fault begins now. The returned function records its end.
func (t *Timeline) Begin(f Fault) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	place := len(t.windows)
	t.windows = append(t.windows, Window{Fault: f, Begin: time.Now()})
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.windows[place].End = time.Now()
	}
}

// Windows returns the windows so far, in the order in which they began.
func (t *Timeline) Windows() []Window {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Window(nil), t.windows...)
}

// Any reports whether a window that the function accepts lasted at the moment,
// or had ended at most after before it.
func (t *Timeline) Any(at time.Time, after time.Duration, accept func(Window) bool) bool {
	for _, w := range t.Windows() {
		began := !w.Begin.After(at)
		lasts := w.End.IsZero() || w.End.Add(after).After(at)
		if began && lasts && accept(w) {
			return true
		}
	}
	return false
}
