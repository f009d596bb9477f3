package boot

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/checkouts"
	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/sweeper"
)

// maintenance runs the scheduled [Passes]. They may run twice at once, late, or
// not at all for a while: no promise depends on them.
type maintenance struct {
	db       *pgxpool.Pool
	log      *slog.Logger
	sweeper  *sweeper.Sweeper
	recovery *checkouts.Recovery
	config   *config.Config
}

// passTimeout ends a scheduled pass before River rescues its job, after 30 s,
// as the job of a dead worker. A pass with more work continues after the other
// pass has had its turn.
const passTimeout = 10 * time.Second

func newMaintenance(p *Program, db *pgxpool.Pool) (*maintenance, error) {
	s, err := sweeper.New(db, p.Log, p.sweeperConfig())
	if err != nil {
		return nil, err
	}
	recovery, err := p.recovery(db)
	if err != nil {
		return nil, err
	}
	return &maintenance{db: db, log: p.Log, sweeper: s, recovery: recovery, config: &p.Config}, nil
}

// scheduled returns the passes that have a schedule.
func scheduled() []Pass {
	return slices.DeleteFunc(slices.Clone(Passes), func(pass Pass) bool { return pass.schedule == nil })
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

func (m *maintenance) purge(ctx context.Context) (more bool, err error) {
	streams, err := lanes.Streams(ctx, m.db)
	if err != nil {
		return false, err
	}
	report, err := m.sweeper.PurgeOnce(ctx, streams)
	if report != (sweeper.PurgeReport{}) {
		m.log.InfoContext(ctx, "purged", "report", report)
	}
	if err == nil && ctx.Err() == nil {
		_, _, err = queues.PurgeWakes(ctx, m.db, wakeRetention)
	}
	if err == nil && ctx.Err() == nil {
		_, _, err = purgeTickets(ctx, m.db)
	}
	return report.Unfinished(), err
}

// do runs one pass and counts it if it succeeds. A pass with a schedule ends
// after passTimeout.
func (m *maintenance) do(ctx context.Context, pass Pass) (more bool, err error) {
	if pass.schedule != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, passTimeout)
		defer cancel()
	}
	ctx, done := telemetry.Verb(ctx, "maintenance."+pass.Name)
	more, err = pass.inWorker(ctx, m)
	done("", err)
	if err == nil {
		telemetry.JobSucceeded(ctx, pass.Name)
	}
	return more && err == nil, err
}

// run runs the passes by their schedules until ctx ends: the first time at
// once, and at once again after a pass that has more work. Different passes run
// concurrently; each pass runs once at a time.
func (m *maintenance) run(ctx context.Context) error {
	var group errgroup.Group
	for _, pass := range scheduled() {
		group.Go(func() error {
			m.repeat(ctx, pass, func() time.Duration { return time.Until(pass.schedule(m.config).Next(time.Now())) })
			return nil
		})
	}
	return group.Wait()
}

// runFrequent runs the passes that each worker runs all the time, until ctx
// ends, and waits up to grace for the passes that then run.
func (m *maintenance) runFrequent(ctx context.Context, grace time.Duration) error {
	var running sync.WaitGroup
	for _, pass := range Passes {
		if pass.every > 0 {
			running.Go(func() { m.repeat(ctx, pass, func() time.Duration { return pass.every }) })
		}
	}
	ended := make(chan struct{})
	go func() {
		running.Wait()
		close(ended)
	}()
	<-ctx.Done()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		m.log.WarnContext(ctx, "a pass did not end in time; other workers continue its work")
	}
	return nil
}

// repeat runs a pass until ctx ends, with pauses, and without a pause after a
// pass that has more work.
func (m *maintenance) repeat(ctx context.Context, pass Pass, pause func() time.Duration) {
	for ctx.Err() == nil {
		more, err := m.do(ctx, pass)
		if err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "a scheduled pass failed; the next one tries again", "job", pass.Name, "error", err)
		}
		if !more {
			_ = sleep.For(ctx, pause()) // or ctx ends
		}
	}
}

// maintenanceQueue is the River queue of the passes. Its name is stored with
// the jobs. Each process runs one at a time.
const maintenanceQueue = "upkeep"

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
func (m *maintenance) register(c *queues.WorkerConfig, byTicker bool) {
	c.Queues = map[string]river.QueueConfig{maintenanceQueue: {MaxWorkers: 1}}
	for _, pass := range scheduled() {
		args := passArgs{pass.Name}
		river.AddWorkerArgs(c.Workers, args, &passWorker{maintenance: m, pass: pass})
		if byTicker {
			continue
		}
		c.PeriodicJobs = append(c.PeriodicJobs, river.NewPeriodicJob(pass.schedule(m.config), func() (river.JobArgs, *river.InsertOpts) {
			return args, &river.InsertOpts{Queue: maintenanceQueue, MaxAttempts: 1, UniqueOpts: river.UniqueOpts{ByState: unfinished}}
		}, &river.PeriodicJobOpts{ID: args.Kind(), RunOnStart: true}))
	}
}

// passWorker works the jobs of one pass.
type passWorker struct {
	river.WorkerDefaults[passArgs]
	maintenance *maintenance
	pass        Pass
}

// Timeout is slightly longer than the pass's own limit.
func (w *passWorker) Timeout(*river.Job[passArgs]) time.Duration { return passTimeout + time.Second }

// Work runs one pass. If there is more work, the job returns to its queue.
func (w *passWorker) Work(ctx context.Context, _ *river.Job[passArgs]) error {
	more, err := w.maintenance.do(ctx, w.pass)
	if more {
		return river.JobSnooze(0)
	}
	return err
}
