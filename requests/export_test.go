package requests

import (
	"context"
	"time"
)

// InLine is how many callers stand in the lines.
func (in *Intake) InLine() int { return in.lines[Hot].size() + in.lines[Normal].size() }

// Look looks at the backlog now. What it finds counts until the next call, however long that takes.
func (in *Intake) Look(ctx context.Context) error {
	in.backlog.mu.Lock()
	in.backlog.grace = time.Hour
	in.backlog.mu.Unlock()
	err := in.backlog.look(ctx)
	in.backlog.mu.Lock()
	defer in.backlog.mu.Unlock()
	in.backlog.due = in.backlog.until
	return err
}

// Freeze keeps the backlog from looking by itself: it counts as empty, or as last seen.
func (in *Intake) Freeze() {
	in.backlog.mu.Lock()
	defer in.backlog.mu.Unlock()
	in.backlog.until = time.Now().Add(time.Hour)
	in.backlog.due = in.backlog.until
}

// Waiting is how many requests somebody waits for.
func (w *Watcher) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}
