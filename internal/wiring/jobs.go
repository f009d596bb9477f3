package wiring

import (
	"context"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast/holdfast/internal/queues"
)

// maintenanceQueue is the River queue of the passes. Its name is stored with
// the jobs. Each process runs one at a time.
const maintenanceQueue = "maintenance"

// unfinished are the states of a job that waits or runs.
var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning, rivertype.JobStateScheduled,
}

// passArgs are the River job of a pass. Its kind is stored: if a pass is
// renamed, no worker knows its old jobs.
type passArgs struct{ pass string }

func (a passArgs) Kind() string { return "holdfast_" + a.pass }

// register adds the kinds of the passes to a River client and, unless a ticker
// runs them, their schedules. A pass that fails is not repeated: the next one
// does its work. A pass with more work becomes available again at once, behind
// the waiting jobs. There is one job of each kind, so that a backlog does not
// multiply them. The first job runs when a leader begins, so that changes of
// leader never postpone a pass forever.
func register(passes *Passes, c *queues.WorkerConfig, byTicker bool) {
	c.Queues = map[string]river.QueueConfig{maintenanceQueue: {MaxWorkers: 1}}
	for _, pass := range passes.Scheduled() {
		args := passArgs{pass.Name}
		river.AddWorkerArgs(c.Workers, args, &passWorker{passes: passes, pass: pass})
		if byTicker {
			continue
		}
		c.PeriodicJobs = append(c.PeriodicJobs, river.NewPeriodicJob(pass.Schedule, func() (river.JobArgs, *river.InsertOpts) {
			return args, &river.InsertOpts{Queue: maintenanceQueue, MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByState: unfinished}}
		}, &river.PeriodicJobOpts{ID: args.Kind(), RunOnStart: true}))
	}
}

// passWorker works the jobs of one pass.
type passWorker struct {
	river.WorkerDefaults[passArgs]
	passes *Passes
	pass   Pass
}

// Timeout is slightly longer than the pass's own limit.
func (w *passWorker) Timeout(*river.Job[passArgs]) time.Duration {
	return PassTimeout + time.Second
}

// Work runs one pass. If there is more work, the job returns to its queue.
func (w *passWorker) Work(ctx context.Context, _ *river.Job[passArgs]) error {
	more, err := w.passes.Do(ctx, w.pass)
	if more {
		return river.JobSnooze(0)
	}
	return err
}
