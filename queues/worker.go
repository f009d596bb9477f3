package queues

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast/holdfast/migrations"
)

// wakeTimeout is how long one wake may be worked.
const wakeTimeout = 10 * time.Second

// waker works wakes: it has their slots drained by the lanes of this process, which run.
type waker struct {
	river.WorkerDefaults[WakeArgs]
	lanes map[string]*Lane
}

// Timeout is far above what a wake takes.
func (*waker) Timeout(*river.Job[WakeArgs]) time.Duration { return wakeTimeout }

// Work wakes the slot. It does not wait for the drain: a wake that is lost with the process is found by the tick of another.
func (w *waker) Work(_ context.Context, job *river.Job[WakeArgs]) error {
	if lane := w.lanes[job.Args.Lane]; lane != nil {
		lane.Wake(job.Args.Slot)
	}
	return nil
}

// Configure adds to a program's own River configuration what works the lanes of this process: the worker of wakes, and a
// queue for each lane, which has the lane's name. Call it once, before river.NewClient, and run the lanes (Lane.Run).
// It leaves the settings of the client as they are, except that it sets an empty Schema and makes Workers and Queues if
// they are nil.
//
// A client works the jobs of one schema, and bells insert into migrations.RiverSchema: another Schema is an error, and so
// is a queue of a lane's name. Every client of that schema that works jobs needs the worker of wakes, lanes or not, because
// the one that leads discards the jobs whose kind it does not know. A wake is of no use once it is worked: a
// CompletedJobRetentionPeriod of minutes keeps River's table small.
func Configure(config *river.Config, lanes ...*Lane) error {
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
	w := &waker{lanes: make(map[string]*Lane)}
	for _, lane := range lanes {
		if _, taken := config.Queues[lane.Name()]; taken {
			return fmt.Errorf("configure the River client: there is a queue %q already, which is the name of a lane", lane.Name())
		}
		w.lanes[lane.Name()] = lane
		config.Queues[lane.Name()] = river.QueueConfig{
			MaxWorkers: lane.Concurrency(), FetchCooldown: 2 * time.Millisecond, FetchPollInterval: time.Second,
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
	// SoftStop is how long running jobs may take to end after Stop; default 7 s, which fits Cloud Run's 10 s.
	SoftStop time.Duration
	// Middleware is given to River as it is.
	Middleware []rivertype.Middleware
}

// NewClient makes the River client of a program whose only jobs are the lanes' wakes and those of config. A program that
// has a River client of its own uses [Configure]. Start and stop it as River says.
func NewClient(db *pgxpool.Pool, log *slog.Logger, lanes []*Lane, config WorkerConfig) (*Client, error) {
	setDefault(&config.SoftStop, 7*time.Second)
	settings := &river.Config{
		Logger:                      log,
		Queues:                      maps.Clone(config.Queues),
		Workers:                     config.Workers,
		PeriodicJobs:                config.PeriodicJobs,
		FetchCooldown:               2 * time.Millisecond,
		FetchPollInterval:           time.Second, // River notifies, and so do bells
		JobTimeout:                  10 * time.Second,
		RescueStuckJobsAfter:        30 * time.Second,
		CompletedJobRetentionPeriod: 5 * time.Minute,
		RetryPolicy:                 retryEverySecond{},
		SoftStopTimeout:             config.SoftStop,
		Middleware:                  config.Middleware,
	}
	if err := Configure(settings, lanes...); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(db), settings)
	if err != nil {
		return nil, fmt.Errorf("make the River client: %w", err)
	}
	return client, nil
}
