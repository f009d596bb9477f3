package requests

import (
	"context"
	"time"
)

// InLine is how many callers stand in the lines.
func (in *Intake) InLine() int { return in.lines[Hot].Len() + in.lines[Normal].Len() }

// Refresh has the intake read the load, and use it however long callers stay away.
func (in *Intake) Refresh(ctx context.Context) error {
	in.shedder.mu.Lock()
	in.shedder.freshFor = time.Hour
	in.shedder.mu.Unlock()
	return in.shedder.refresh(ctx)
}

// Waiting is how many requests somebody waits for.
func (w *Watcher) Waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiters)
}

// Idle has the intake behave as if no caller had come for a while.
func (in *Intake) Idle() {
	in.shedder.mu.Lock()
	defer in.shedder.mu.Unlock()
	in.shedder.valid = time.Now().Add(-time.Second)
}

// LineOf returns in which lane's line a caller would wait.
func (in *Intake) LineOf(ctx context.Context, s Submission) string {
	m := newMember(ctx, s)
	if in.shedder.enter(m) == nil {
		in.shedder.leave(m, Request{}, false)
	}
	return m.lane
}
