package queues

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/migrations"
)

// wakeTimeout is how long one wake may be worked.
const wakeTimeout = 10 * time.Second

// waker works wakes: it wakes their slots in the lanes that this process runs.
type waker struct {
	river.WorkerDefaults[WakeArgs]
	lanes map[lanes.Lane]*Lane
}

// Timeout is far above what a wake takes.
func (*waker) Timeout(*river.Job[WakeArgs]) time.Duration { return wakeTimeout }

// Work wakes the slot. It does not wait for the drain. If the process dies
// before the drain, the tick of another process finds the work.
func (w *waker) Work(_ context.Context, job *river.Job[WakeArgs]) error {
	if lane := w.lanes[job.Args.Lane]; lane != nil {
		lane.Wake(job.Args.Slot)
	}
	return nil
}

// Configure adds the lanes of this process to a program's River configuration:
// the worker of wakes, and one queue per lane, which has the lane's name. Call
// it once, before river.NewClient, and run the lanes (Lane.Run). It sets an
// empty Schema, and makes Workers and Queues if they are nil. It changes no
// other setting of the client.
//
// A client works the jobs of one schema, and a WakeInserter inserts into
// migrations.RiverSchema. Another Schema is an error, and so is an existing
// queue of a lane's name.
//
// Every client of that schema that works jobs needs the worker of wakes, even
// without lanes, because the leader discards jobs of a kind that it does not
// know. A wake is of no use once it is worked: a CompletedJobRetentionPeriod of
// minutes keeps River's table small.
func Configure(config *river.Config, served ...*Lane) error {
	if config.Schema == "" {
		config.Schema = migrations.RiverSchema
	}
	if config.Schema != migrations.RiverSchema {
		return fmt.Errorf("configure the River client: its schema is %q, but wakes are in %q", config.Schema, migrations.RiverSchema)
	}
	if config.Workers == nil {
		config.Workers = river.NewWorkers()
	}
	if config.Queues == nil {
		config.Queues = make(map[string]river.QueueConfig)
	}
	w := &waker{lanes: make(map[lanes.Lane]*Lane)}
	for _, lane := range served {
		queue := string(lane.Name())
		if _, taken := config.Queues[queue]; taken {
			return fmt.Errorf("configure the River client: the queue %q exists already, and a lane has that name", queue)
		}
		w.lanes[lane.Name()] = lane
		config.Queues[queue] = river.QueueConfig{
			MaxWorkers: lane.Concurrency(), FetchCooldown: 2 * time.Millisecond, FetchPollInterval: time.Second,
		}
	}
	if err := river.AddWorkerSafely(config.Workers, w); err != nil {
		return fmt.Errorf("configure the River client: %w", err)
	}
	return nil
}

// retryEverySecond is the retry policy of the programs' jobs, which fail only
// in an outage.
type retryEverySecond struct{}

// NextRetry is a second from now.
func (retryEverySecond) NextRetry(*rivertype.JobRow) time.Time { return time.Now().Add(time.Second) }

// WorkerConfig configures what a River client works on besides wakes.
type WorkerConfig struct {
	Workers      *river.Workers // further kinds of job; nil for none
	PeriodicJobs []*river.PeriodicJob
	// Queues are further River queues, by name.
	Queues map[string]river.QueueConfig
	// SoftStop is how long running jobs may take to end after Stop. The default
	// is 7 s, which fits Cloud Run's 10 s.
	SoftStop time.Duration
	// Middleware is passed to River unchanged.
	Middleware []rivertype.Middleware
}

// NewClient makes the River client of a program whose only jobs are the lanes'
// wakes and those of config. A program with its own River client uses
// [Configure]. Start and stop the client as River documents.
func NewClient(db *pgxpool.Pool, log *slog.Logger, served []*Lane, config WorkerConfig) (*Client, error) {
	config.SoftStop = cmp.Or(config.SoftStop, 7*time.Second)
	settings := &river.Config{
		Logger:                      log,
		Queues:                      maps.Clone(config.Queues),
		Workers:                     config.Workers,
		PeriodicJobs:                config.PeriodicJobs,
		FetchCooldown:               2 * time.Millisecond,
		FetchPollInterval:           time.Second, // River notifies, and so does a WakeInserter
		JobTimeout:                  10 * time.Second,
		RescueStuckJobsAfter:        30 * time.Second,
		CompletedJobRetentionPeriod: 5 * time.Minute,
		RetryPolicy:                 retryEverySecond{},
		SoftStopTimeout:             config.SoftStop,
		Middleware:                  config.Middleware,
	}
	if err := Configure(settings, served...); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(db), settings)
	if err != nil {
		return nil, fmt.Errorf("make the River client: %w", err)
	}
	return client, nil
}
