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
	// wakeTimeout is how long one wake may be worked.
	wakeTimeout = 10 * time.Second
)

// waker works wakes.
type waker struct {
	river.WorkerDefaults[WakeArgs]
	bell  *Bell
	lanes map[string]*Lane
}

// Timeout is above ServeFor and the transaction that may begin just before its end.
func (*waker) Timeout(*river.Job[WakeArgs]) time.Duration { return wakeTimeout }

// NextRetry is a second from now: what failed a wake was an outage, and the tick tries too.
func (*waker) NextRetry(*river.Job[WakeArgs]) time.Time { return time.Now().Add(time.Second) }

// Work drains the wake's slot. What is left when its time is up is rung again; a slot that another process has is asked
// for again a little later, and one that nobody serves not for long.
func (w *waker) Work(ctx context.Context, job *river.Job[WakeArgs]) error {
	lane := w.lanes[job.Args.Lane]
	if lane == nil || !lane.Serves(job.Args.Slot) {
		if time.Since(job.CreatedAt).Abs() > strayFor { // far in the future: a clock was set back
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
		return pgx.BeginFunc(ctx, w.bell.db, func(tx pgx.Tx) error {
			return w.bell.RingTx(ctx, tx, []requests.Wake{lane.wake(job.Args.Slot)})
		})
	}
	return nil
}

// Configure adds to a program's own River configuration what works the lanes of this process: the worker of wakes, and a
// queue for each lane, which has the lane's name. Call it once, before river.NewClient, with the bell of the same database.
// It leaves the settings of the client as they are, except that it sets an empty Schema and makes Workers and Queues if
// they are nil.
//
// A client works the jobs of one schema, and bells insert into migrations.RiverSchema: another Schema is an error, and so
// is a queue of a lane's name. Every client of that schema that works jobs needs the worker of wakes, lanes or not, because
// the one that leads discards the jobs whose kind it does not know. A wake is of no use once it is worked: a
// CompletedJobRetentionPeriod of minutes keeps River's table small.
func Configure(config *river.Config, bell *Bell, lanes ...*Lane) error {
	if config.Schema == "" {
		config.Schema = migrations.RiverSchema
	}
	if config.Schema != migrations.RiverSchema {
		return fmt.Errorf("configure the River client: its schema is %q, and wakes are in %q", config.Schema, migrations.RiverSchema)
	}
	if config.Workers == nil {
		config.Workers = river.NewWorkers()
	}
	if config.Queues == nil {
		config.Queues = make(map[string]river.QueueConfig)
	}
	w := &waker{bell: bell, lanes: make(map[string]*Lane)}
	for _, lane := range lanes {
		if _, taken := config.Queues[lane.Name()]; taken {
			return fmt.Errorf("configure the River client: there is a queue %q already, which is the name of a lane", lane.Name())
		}
		w.lanes[lane.Name()] = lane
		config.Queues[lane.Name()] = river.QueueConfig{
			MaxWorkers: lane.Concurrency(), FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 200 * time.Millisecond,
		}
	}
	if err := river.AddWorkerSafely(config.Workers, w); err != nil {
		return fmt.Errorf("configure the River client: %w", err)
	}
	return nil
}

// retryEverySecond is the retry policy of the programs' jobs: what failed them was an outage.
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
	// Middleware is given to River as it is.
	Middleware []rivertype.Middleware
}

// NewClient makes the River client of a program whose only jobs are the lanes' wakes and those of config. A program that
// has a River client of its own uses [Configure]. Start and stop it as River says.
func NewClient(db *pgxpool.Pool, log *slog.Logger, bell *Bell, lanes []*Lane, config WorkerConfig) (*Client, error) {
	setDefault(&config.SoftStop, 7*time.Second)
	settings := &river.Config{
		Logger:                      log,
		Queues:                      maps.Clone(config.Queues),
		Workers:                     config.Workers,
		PeriodicJobs:                config.PeriodicJobs,
		FetchCooldown:               2 * time.Millisecond,
		FetchPollInterval:           200 * time.Millisecond,
		JobTimeout:                  10 * time.Second,
		RescueStuckJobsAfter:        30 * time.Second,
		CompletedJobRetentionPeriod: 5 * time.Minute,
		RetryPolicy:                 retryEverySecond{},
		SoftStopTimeout:             config.SoftStop,
		Middleware:                  config.Middleware,
	}
	if err := Configure(settings, bell, lanes...); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(db), settings)
	if err != nil {
		return nil, fmt.Errorf("make the River client: %w", err)
	}
	return client, nil
}
