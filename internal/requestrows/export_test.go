package requestrows

import "time"

// RereadNever makes callers wait for a notification only. It is called before
// the first wait.
func (w *Watcher) RereadNever() { w.reread = 24 * time.Hour }

// Waiting is the number of requests for which callers wait.
func (w *Watcher) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}
