package boot

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast/holdfast/checkouts"
	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/sweeper"
)

// maintenance has what the passes work with, in a worker and in oneshot.
type maintenance struct {
	db       *pgxpool.Pool
	log      *slog.Logger
	sweeper  *sweeper.Sweeper
	recovery *checkouts.Recovery // in a worker
	config   *config.Config
}

func (p *Program) maintenance(db *pgxpool.Pool) (*maintenance, error) {
	s, err := sweeper.New(db, p.Log, p.sweeperConfig())
	return &maintenance{db: db, log: p.Log, sweeper: s, config: &p.Config}, err
}

// workerPasses makes those of all passes that a worker runs.
func (p *Program) workerPasses(db *pgxpool.Pool) (*sweeper.Passes, error) {
	m, err := p.maintenance(db)
	if err != nil {
		return nil, err
	}
	m.recovery, err = p.recovery(db)
	return m.passes(), err
}

func (m *maintenance) passes() *sweeper.Passes {
	own := &sweeper.Passes{Log: m.log}
	for _, pass := range Passes {
		if pass.inWorker == nil {
			continue
		}
		made := sweeper.Pass{Name: pass.Name, Every: pass.every, RunOnce: func(ctx context.Context) (bool, error) { return pass.inWorker(ctx, m) }}
		if pass.schedule != nil {
			made.Schedule = pass.schedule(m.config)
		}
		own.Table = append(own.Table, made)
	}
	return own
}

func (p *Program) sweeperConfig() sweeper.Config {
	c := p.Config.Sweep
	bounds := sweeper.Config{Batch: c.Batch, RequestRetention: c.RequestRetention, AuditRetention: c.AuditRetention}
	if p.Config.Metered.On {
		bounds.MeteredRetention = p.Config.Metered.Retention
	}
	return bounds
}

func (m *maintenance) sweep(ctx context.Context) (more bool, err error) {
	report, err := m.sweeper.RunOnce(ctx)
	if report.ExpiredCount > 0 {
		m.log.InfoContext(ctx, "swept", "expired_count", report.ExpiredCount, "more", report.More)
	}
	return report.Unfinished(), err
}

// purge deletes what is old in this task's part of the streams. Workers complete
// and delete wakes. If none runs, the wakes stay, so the first task also deletes
// old wakes.
func (m *maintenance) purge(ctx context.Context) (report PurgeReport, err error) {
	streams, err := lanes.Streams(ctx, m.db)
	if err != nil {
		return report, err
	}
	report.PurgeReport, err = m.sweeper.PurgeOnce(ctx, m.share(streams))
	if err != nil || ctx.Err() != nil || m.config.Task.Index > 0 {
		return report, err
	}
	var more bool
	report.Wakes, more, err = queues.PurgeWakes(ctx, m.db, wakeRetention)
	report.More = report.More || more
	if err != nil || ctx.Err() != nil {
		return report, err
	}
	report.LiveTickets, more, err = purgeTickets(ctx, m.db)
	report.More = report.More || more
	return report, err
}

// share deals the streams out to the tasks in turn.
func (m *maintenance) share(streams []lanes.Stream) (own []lanes.Stream) {
	for i, stream := range streams {
		if i%m.config.Task.Count == m.config.Task.Index {
			own = append(own, stream)
		}
	}
	return own
}

func (m *maintenance) purgeInWorker(ctx context.Context) (more bool, err error) {
	report, err := m.purge(ctx)
	if report != (PurgeReport{}) {
		m.log.InfoContext(ctx, "purged", "report", report)
	}
	return report.Unfinished(), err
}

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
func register(passes *sweeper.Passes, c *queues.WorkerConfig, byTicker bool) {
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
	passes *sweeper.Passes
	pass   sweeper.Pass
}

// Timeout is slightly longer than the pass's own limit.
func (w *passWorker) Timeout(*river.Job[passArgs]) time.Duration {
	return sweeper.PassTimeout + time.Second
}

// Work runs one pass. If there is more work, the job returns to its queue.
func (w *passWorker) Work(ctx context.Context, _ *river.Job[passArgs]) error {
	more, err := w.passes.Do(ctx, w.pass)
	if more {
		return river.JobSnooze(0)
	}
	return err
}
