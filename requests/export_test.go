package requests

// InLine is how many callers stand in the line.
func (in *Intake) InLine() int { return len(in.line) }

// Waiting is how many requests somebody waits for.
func (w *Watcher) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}
