package requests

import (
	"context"
	"time"
)

// DrewMin is how many numbers a process must have drawn to tell how many the others did.
const DrewMin = drewMin

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

// Overdue makes the next look at the backlog due, and reports whether none is under way.
func (in *Intake) Overdue() bool {
	in.backlog.mu.Lock()
	defer in.backlog.mu.Unlock()
	in.backlog.due = time.Time{}
	return !in.backlog.looking
}

// Looked is when the last look at the backlog began.
func (in *Intake) Looked() time.Time {
	in.backlog.mu.Lock()
	defer in.backlog.mu.Unlock()
	return in.backlog.seen.began
}
