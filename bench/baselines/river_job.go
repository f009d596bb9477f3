package baselines

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/holdfast/holdfast/migrations"
)

// RiverJobs has a River job for each request, each worked in a separate
// transaction. River's settings are those of Holdfast's worker, except the
// number of workers.
type RiverJobs struct {
	db     *pgxpool.Pool
	client *river.Client[pgx.Tx]
	held   atomic.Int64
}

// JobArgs is a request as River stores it.
type JobArgs struct {
	Request Request `json:"request"`
}

// Kind names the job.
func (JobArgs) Kind() string { return "baseline_hold" }

// jobQueue is not a lane's queue, so that no worker of Holdfast takes its jobs.
const jobQueue = "baseline"

type jobWorker struct {
	river.WorkerDefaults[JobArgs]
	jobs *RiverJobs
}

// Work holds the units. Sold out is an outcome too, and is not retried.
func (w *jobWorker) Work(ctx context.Context, job *river.Job[JobArgs]) error {
	err := pgx.BeginFunc(ctx, w.jobs.db, func(tx pgx.Tx) error { return HoldTx(ctx, tx, job.Args.Request) })
	if err == nil {
		w.jobs.held.Add(1)
	}
	if errors.Is(err, ErrSoldOut) {
		return nil
	}
	return err
}

// NewRiverJobs makes the client; the number of workers bounds how many jobs run
// at one time.
func NewRiverJobs(db *pgxpool.Pool, workers int) (*RiverJobs, error) {
	jobs := &RiverJobs{db: db}
	kinds := river.NewWorkers()
	river.AddWorker(kinds, &jobWorker{jobs: jobs})
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema:                      migrations.RiverSchema,
		Logger:                      slog.New(slog.DiscardHandler), // the holds are counted
		Queues:                      map[string]river.QueueConfig{jobQueue: {MaxWorkers: workers}},
		Workers:                     kinds,
		FetchCooldown:               2 * time.Millisecond,
		FetchPollInterval:           200 * time.Millisecond,
		JobTimeout:                  10 * time.Second,
		RescueStuckJobsAfter:        30 * time.Second,
		CompletedJobRetentionPeriod: 5 * time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("make the River client: %w", err)
	}
	jobs.client = client
	return jobs, nil
}

// Enqueue inserts a job for each request.
func (j *RiverJobs) Enqueue(ctx context.Context, requests []Request) error {
	params := make([]river.InsertManyParams, len(requests))
	for i := range requests {
		params[i] = river.InsertManyParams{Args: JobArgs{requests[i]}, InsertOpts: &river.InsertOpts{Queue: jobQueue, MaxAttempts: 5}}
	}
	if _, err := j.client.InsertManyFast(ctx, params); err != nil {
		return fmt.Errorf("insert %d jobs: %w", len(requests), err)
	}
	return nil
}

// Start begins to work the jobs; Stop waits for those that run.
func (j *RiverJobs) Start(ctx context.Context) error { return j.client.Start(ctx) }

// Stop ends the work.
func (j *RiverJobs) Stop(ctx context.Context) error { return j.client.Stop(ctx) }

// Held is how many holds were committed so far.
func (j *RiverJobs) Held() int64 { return j.held.Load() }
