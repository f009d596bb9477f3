package admission

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
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

// ReadLoad reads the load as Run does, until ctx ends.
func (in *Intake) ReadLoad(ctx context.Context) { in.shedder.run(ctx) }

// Pending returns how many callers have come and have no answer.
func (in *Intake) Pending() (n int64) {
	in.shedder.mu.Lock()
	defer in.shedder.mu.Unlock()
	for _, lane := range lanes.All() {
		n += in.shedder.pending[tenantLane{lane: lane}]
	}
	return n
}

// Refuses reports whether a caller that comes now is refused because of the
// load.
func (in *Intake) Refuses(ctx context.Context, s requestrows.Submission) bool {
	w := newWaiter(ctx, s)
	if in.shedder.enter(w) != nil {
		return true
	}
	in.shedder.leave(w, requests.Request{}, false)
	return false
}

// LaneOf returns the lane in whose queue a caller would wait.
func (in *Intake) LaneOf(ctx context.Context, s requestrows.Submission) lanes.Lane {
	w := newWaiter(ctx, s)
	if in.shedder.enter(w) == nil {
		in.shedder.leave(w, requests.Request{}, false)
	}
	return w.lane
}
