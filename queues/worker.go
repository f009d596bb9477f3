package queues

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/requests"
)

const (
	// snooze is how long a wake waits whose slot another process drains or serves.
	snooze = 50 * time.Millisecond
	// strayFor is how long a wake looks for a process that serves its slot. After that the ticks of such a process have
	// drained the slot, or there is none, and the wakes of an unserved slot must not keep the others busy.
	strayFor = 5 * time.Second
)

// waker works wakes.
type waker struct {
	river.WorkerDefaults[WakeArgs]
	db    *pgxpool.Pool
	bell  *Bell
	lanes map[string]*Lane
}

// Work drains the wake's slot. What is left when its time is up is rung again; a slot that another process has is asked
// for again a little later, and one that nobody serves not for long.
func (w *waker) Work(ctx context.Context, job *river.Job[WakeArgs]) error {
	lane := w.lanes[job.Args.Lane]
	if lane == nil || !lane.Serves(job.Args.Slot) {
		if time.Since(job.CreatedAt) > strayFor {
			return nil
		}
		return river.JobSnooze(snooze)
	}
	report, err := lane.Serve(ctx, job.Args.Slot)
	switch {
	case errors.Is(err, ErrBusy):
		return river.JobSnooze(snooze)
	case err != nil:
		return err
	case report.More:
		return pgx.BeginFunc(ctx, w.db, func(tx pgx.Tx) error {
			return w.bell.RingTx(ctx, tx, []requests.Wake{lane.wake(job.Args.Slot)})
		})
	}
	return nil
}

// retryEverySecond is the retry policy of wakes: what failed them was an outage, and the tick tries too.
type retryEverySecond struct{}

// NextRetry is a second from now.
func (retryEverySecond) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(time.Second) }

// WorkerConfig says what a River client works on besides wakes.
type WorkerConfig struct {
	Workers      *river.Workers // further kinds of job; nil for none
	PeriodicJobs []*river.PeriodicJob
	// Queues are further River queues, by name.
	Queues map[string]river.QueueConfig
	// SoftStop is how long running wakes may take to end after Stop; default 7 s, which fits Cloud Run's 10 s.
	SoftStop time.Duration
}

// NewClient makes the River client that works the lanes' wakes. Start and stop it as River says.
func NewClient(db *pgxpool.Pool, log *slog.Logger, bell *Bell, lanes []*Lane, config WorkerConfig) (*Client, error) {
	workers := config.Workers
	if workers == nil {
		workers = river.NewWorkers()
	}
	w := &waker{db: db, bell: bell, lanes: make(map[string]*Lane)}
	queues := make(map[string]river.QueueConfig)
	maps.Copy(queues, config.Queues)
	for _, lane := range lanes {
		w.lanes[lane.Name()] = lane
		queues[lane.Name()] = river.QueueConfig{MaxWorkers: lane.Concurrency()}
	}
	if err := river.AddWorkerSafely(workers, w); err != nil {
		return nil, fmt.Errorf("register the wake: %w", err)
	}
	setDefault(&config.SoftStop, 7*time.Second)
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema:                      migrations.RiverSchema,
		Logger:                      log,
		Queues:                      queues,
		Workers:                     workers,
		PeriodicJobs:                config.PeriodicJobs,
		FetchCooldown:               2 * time.Millisecond,
		FetchPollInterval:           200 * time.Millisecond,
		JobTimeout:                  10 * time.Second,
		RescueStuckJobsAfter:        30 * time.Second,
		CompletedJobRetentionPeriod: 5 * time.Minute,
		RetryPolicy:                 retryEverySecond{},
		SoftStopTimeout:             config.SoftStop,
	})
	if err != nil {
		return nil, fmt.Errorf("make the River client: %w", err)
	}
	return client, nil
}
