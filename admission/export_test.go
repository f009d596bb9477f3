package admission

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/requests"
)

// Waiting returns how many callers are in the admission queues.
func (in *Intake) Waiting() int {
	return in.waiting[lanes.Hot].Len() + in.waiting[lanes.Normal].Len()
}

// Refresh makes the intake read the load, and use it even if no caller comes
// for a long time.
func (in *Intake) Refresh(ctx context.Context) error {
	in.shedder.mu.Lock()
	in.shedder.freshFor = time.Hour
	in.shedder.mu.Unlock()
	return in.shedder.refresh(ctx)
}

// Idle makes the intake behave as if no caller had come for a while.
func (in *Intake) Idle() {
	in.shedder.mu.Lock()
	defer in.shedder.mu.Unlock()
	in.shedder.valid = time.Now().Add(-time.Second)
}

// LaneOf returns the lane in whose queue a caller would wait.
func (in *Intake) LaneOf(ctx context.Context, s requests.Submission) lanes.Lane {
	w := newWaiter(ctx, s)
	if in.shedder.enter(w) == nil {
		in.shedder.leave(w, requests.Request{}, false)
	}
	return w.lane
}
