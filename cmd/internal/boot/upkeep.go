package boot

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/sweeper"
)

// upkeep is the maintenance that runs by schedule: sweeps and purges. Both may run twice at once, late, or not at all for
// a while; no promise hangs on them.
type upkeep struct {
	db      *pgxpool.Pool
	log     *slog.Logger
	sweeper *sweeper.Sweeper
	jobs    []job
}

// job is one scheduled pass, bounded by its timeout.
type job struct {
	name     string
	schedule config.Schedule
	timeout  time.Duration
	// pass reports whether it reached its bound after it did something, so that the next pass should begin at once.
	pass func(context.Context) (more bool, err error)
	args river.JobArgs
}

// The kinds of River job for the passes. Their names are stored: a renamed kind is one that nobody knows.
type (
	sweepArgs struct{}
	purgeArgs struct{}
)

func (sweepArgs) Kind() string { return "holdfast_sweep" }
func (purgeArgs) Kind() string { return "holdfast_purge" }

// The passes end before River takes their job for one whose worker died, which is after 30 s. One with more to do goes on
// after the other has had its turn.
const (
	sweepTimeout = 10 * time.Second
	purgeTimeout = 10 * time.Second
)

func newUpkeep(p *Program, db *pgxpool.Pool) (*upkeep, error) {
	s, err := sweeper.New(db, p.Log, p.sweeperConfig())
	if err != nil {
		return nil, err
	}
	u := &upkeep{db: db, log: p.Log, sweeper: s}
	u.jobs = []job{
		{"sweep", p.Config.Sweep.Schedule, sweepTimeout, u.sweep, sweepArgs{}},
		{"purge", p.Config.Sweep.PurgeSchedule, purgeTimeout, u.purge, purgeArgs{}},
	}
	return u, nil
}

func (p *Program) sweeperConfig() sweeper.Config {
	c := p.Config.Sweep
	bounds := sweeper.Config{Batch: c.Batch, RequestRetention: c.RequestRetention, AuditRetention: c.AuditRetention}
	if p.Config.Metered.On {
		bounds.MeteredRetention = p.Config.Metered.Retention
	}
	return bounds
}

func (u *upkeep) sweep(ctx context.Context) (more bool, err error) {
	report, err := u.sweeper.RunOnce(ctx)
	if report.ExpiredCount > 0 {
		u.log.InfoContext(ctx, "swept", "expired_count", report.ExpiredCount, "more", report.More)
	}
	return report.Unfinished(), err
}

func (u *upkeep) purge(ctx context.Context) (more bool, err error) {
	streams, err := queues.Streams(ctx, u.db)
	if err != nil {
		return false, err
	}
	report, err := u.sweeper.PurgeOnce(ctx, streams)
	if report != (sweeper.PurgeReport{}) {
		u.log.InfoContext(ctx, "purged", "report", report)
	}
	if err == nil && ctx.Err() == nil {
		_, _, err = queues.PurgeWakes(ctx, u.db, wakeRetention)
	}
	return report.Unfinished(), err
}

// do runs one pass of a job and counts it if it succeeds.
func (j job) do(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	ctx, done := telemetry.Verb(ctx, "upkeep."+j.name)
	more, err = j.pass(ctx)
	done("", err)
	if err == nil {
		telemetry.JobSucceeded(ctx, j.name)
	}
	return more && err == nil, err
}

// run runs the jobs by their schedules until ctx ends, the first time at once, and a job with more to do at once again. The
// jobs run side by side, one pass of each at a time.
func (u *upkeep) run(ctx context.Context) error {
	var group errgroup.Group
	for _, j := range u.jobs {
		group.Go(func() error {
			for ctx.Err() == nil {
				more, err := j.do(ctx)
				if err != nil && ctx.Err() == nil {
					u.log.WarnContext(ctx, "a scheduled pass failed; the next one tries again", "job", j.name, "error", err)
				}
				if more {
					continue
				}
				_ = sleep(ctx, time.Until(j.schedule.Next(time.Now()))) // or ctx ends
			}
			return nil
		})
	}
	return group.Wait()
}

// upkeepQueue is the River queue of the passes, one at a time in each process.
const upkeepQueue = "upkeep"

// unfinished are the states of a job that is to be worked or is worked on.
var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable, rivertype.JobStateRunning, rivertype.JobStateScheduled,
}

// register adds the kinds of the jobs to a River client and, unless a ticker runs them, their schedules. A pass that
// fails is not repeated: the next one does its work. One with more to do is available again at once, behind the jobs that
// wait already; there is one of each kind, so that a backlog does not multiply them. The first runs when a leader begins,
// so that changes of leader never put one off for ever.
func (u *upkeep) register(c *queues.WorkerConfig, plain bool) error {
	if err := addPass[sweepArgs](c.Workers, u.jobs[0]); err != nil {
		return err
	}
	if err := addPass[purgeArgs](c.Workers, u.jobs[1]); err != nil {
		return err
	}
	c.Queues = map[string]river.QueueConfig{upkeepQueue: {MaxWorkers: 1}}
	if plain {
		return nil
	}
	for _, j := range u.jobs {
		c.PeriodicJobs = append(c.PeriodicJobs, river.NewPeriodicJob(j.schedule, func() (river.JobArgs, *river.InsertOpts) {
			return j.args, &river.InsertOpts{Queue: upkeepQueue, MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByState: unfinished}}
		}, &river.PeriodicJobOpts{ID: j.args.Kind(), RunOnStart: true}))
	}
	return nil
}

// pass works the jobs of one kind.
type pass[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	job job
}

func addPass[T river.JobArgs](workers *river.Workers, j job) error {
	return river.AddWorkerSafely(workers, &pass[T]{job: j})
}

// Timeout is a moment more than the pass allows itself.
func (w *pass[T]) Timeout(*river.Job[T]) time.Duration { return w.job.timeout + time.Second }

// Work runs one pass. With more to do, the job goes back into its queue.
func (w *pass[T]) Work(ctx context.Context, _ *river.Job[T]) error {
	more, err := w.job.do(ctx)
	if more {
		return river.JobSnooze(0)
	}
	return err
}
