package reservations_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/robfig/cron/v3"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/reservations"
)

// A program that cron or a cloud scheduler starts sweeps once and ends.
func ExampleKernel_SweepOnce() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	abandoned := reservations.HoldOpts{Quantity: 2, TTL: time.Millisecond}
	if _, err := kernel.Hold(ctx, reservations.By(uuid.New(), audit.System()), "hamlet", reservations.NoWindow{}, abandoned); err != nil {
		panic(err)
	}
	var report reservations.SweepReport
	for report.ExpiredCount == 0 { // until the hold is due
		report, err = kernel.SweepOnce(ctx, 10_000)
		if err != nil {
			panic(err)
		}
	}
	fmt.Println("expired", report.ExpiredCount)
	// Output: expired 1
}

// A long-running program sweeps with a ticker.
func ExampleKernel_SweepOnce_ticker() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	abandoned := reservations.HoldOpts{Quantity: 2, TTL: time.Millisecond}
	if _, err := kernel.Hold(ctx, reservations.By(uuid.New(), audit.System()), "hamlet", reservations.NoWindow{}, abandoned); err != nil {
		panic(err)
	}
	ticker := time.NewTicker(10 * time.Millisecond) // a minute, in production
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		report, err := kernel.SweepOnce(ctx, 10_000)
		if err != nil {
			log.Print("sweep: ", err) // the next tick tries again
			continue
		}
		if report.ExpiredCount > 0 {
			fmt.Println("expired", report.ExpiredCount)
			stop() // ends the example
		}
	}
	// Output: expired 1
}

// A long-running program sweeps on a cron schedule.
func ExampleKernel_SweepOnce_cron() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	abandoned := reservations.HoldOpts{Quantity: 2, TTL: time.Millisecond}
	if _, err := kernel.Hold(ctx, reservations.By(uuid.New(), audit.System()), "hamlet", reservations.NoWindow{}, abandoned); err != nil {
		panic(err)
	}
	swept := make(chan int, 10)
	schedule := cron.New()
	if _, err := schedule.AddFunc("@every 1s", func() {
		if report, err := kernel.SweepOnce(ctx, 10_000); err != nil {
			log.Print("sweep: ", err)
		} else {
			swept <- report.ExpiredCount
		}
	}); err != nil {
		panic(err)
	}
	schedule.Start()
	fmt.Println("expired", <-swept)
	<-schedule.Stop().Done()
	// Output: expired 1
}

// Sweep is a River job.
type Sweep struct{}

// Kind names the job.
func (Sweep) Kind() string { return "sweep_seats" }

// Sweeper works Sweep jobs.
type Sweeper struct {
	river.WorkerDefaults[Sweep]
	Kernel *reservations.Kernel[string, reservations.NoWindow]
}

// Work sweeps once. After an error River tries again.
func (s *Sweeper) Work(ctx context.Context, _ *river.Job[Sweep]) error {
	_, err := s.Kernel.SweepOnce(ctx, 10_000)
	return err
}

// In a program with River, River inserts one job every minute, however many
// processes run.
func ExampleKernel_SweepOnce_river() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &Sweeper{Kernel: kernel})
	client, err := river.NewClient(riverpgxv5.New(db), &river.Config{
		Schema: migrations.RiverSchema, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(
			river.PeriodicInterval(time.Minute), func() (river.JobArgs, *river.InsertOpts) { return Sweep{}, nil },
			&river.PeriodicJobOpts{RunOnStart: true},
		)},
	})
	if err != nil {
		panic(err)
	}
	completed, cancel := client.Subscribe(river.EventKindJobCompleted)
	defer cancel()
	if err := client.Start(ctx); err != nil {
		panic(err)
	}
	event := <-completed
	fmt.Println(event.Job.Kind, event.Job.State)
	if err := client.Stop(ctx); err != nil {
		panic(err)
	}
	// Output: sweep_seats completed
}

// Holds that ended long ago are deleted. Committed ones may be deleted only if
// the resource does not count them.
func ExampleKernel_PurgeEnded() {
	ctx := context.Background()
	db, drop := pgtest.ExamplePool() // or pgxpool.New(ctx, databaseURL), once migrated
	defer drop()
	kernel, err := reservations.NewKernel(db, Shows{"venue.seat", 5}, reservations.Config{})
	if err != nil {
		panic(err)
	}
	deleted, err := kernel.PurgeEnded(ctx, reservations.PurgeOpts{Retention: 90 * 24 * time.Hour, Limit: 10_000})
	fmt.Println(deleted, err)
	// Output: 0 <nil>
}
