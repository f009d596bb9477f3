package reservations_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/robfig/cron/v3"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/reservations"
)

// overdue is a kernel of which one hold is past its deadline.
func overdue(ctx context.Context, db *pgxpool.Pool) *reservations.Kernel[string, reservations.NoWindow] {
	kernel := box(db, 5)
	handle := must(kernel.Hold(ctx, reservations.System(uuid.New()), tickets{Key: "hamlet", Quantity: 2, TTL: time.Millisecond}))
	must(db.Exec(ctx, `UPDATE reservations SET expires_at = clock_timestamp() WHERE reservation_id = $1`, handle.ID()))
	return kernel
}

// A program that cron or a scheduler of the cloud starts sweeps once and ends.
func ExampleKernel_SweepOnce() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		report, err := overdue(ctx, db).SweepOnce(ctx, 10_000)
		fmt.Println(report.ExpiredCount, err)
	})
	// Output: 1 <nil>
}

// A program that runs anyway sweeps by a ticker.
func ExampleKernel_SweepOnce_ticker() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel := overdue(ctx, db)
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ticker := time.NewTicker(10 * time.Millisecond) // a minute, in earnest
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			report, err := kernel.SweepOnce(ctx, 10_000)
			if err != nil {
				log.Print("sweep: ", err) // and try again at the next tick
				continue
			}
			if report.ExpiredCount > 0 {
				fmt.Println("expired", report.ExpiredCount)
				stop() // the example's end
			}
		}
	})
	// Output: expired 1
}

// The same within a program, by a cron's schedule.
func ExampleKernel_SweepOnce_cron() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		kernel, swept := overdue(ctx, db), make(chan int, 10)
		schedule := cron.New()
		must(schedule.AddFunc("@every 1s", func() {
			if report, err := kernel.SweepOnce(ctx, 10_000); err != nil {
				log.Print("sweep: ", err)
			} else {
				swept <- report.ExpiredCount
			}
		}))
		schedule.Start()
		fmt.Println("expired", <-swept)
		<-schedule.Stop().Done()
	})
	// Output: expired 1
}

// Sweep is a River job.
type Sweep struct{}

// Kind names the job.
func (Sweep) Kind() string { return "sweep_seats" }

// Sweeper works it.
type Sweeper struct {
	river.WorkerDefaults[Sweep]
	Kernel *reservations.Kernel[string, reservations.NoWindow]
}

// Work sweeps once. An error is River's to try again.
func (s *Sweeper) Work(ctx context.Context, _ *river.Job[Sweep]) error {
	_, err := s.Kernel.SweepOnce(ctx, 10_000)
	return err
}

// A program with River has it insert the job every minute, once however many processes run.
func ExampleKernel_SweepOnce_river() {
	pgtest.Example(func(ctx context.Context, db *pgxpool.Pool) {
		workers := river.NewWorkers()
		river.AddWorker(workers, &Sweeper{Kernel: overdue(ctx, db)})
		client := must(river.NewClient(riverpgxv5.New(db), &river.Config{
			Schema: migrations.RiverSchema, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
			PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(
				river.PeriodicInterval(time.Minute), func() (river.JobArgs, *river.InsertOpts) { return Sweep{}, nil },
				&river.PeriodicJobOpts{RunOnStart: true},
			)},
		}))
		completed, cancel := client.Subscribe(river.EventKindJobCompleted)
		defer cancel()
		if err := client.Start(ctx); err != nil {
			log.Panic(err)
		}
		<-completed
		if err := client.Stop(ctx); err != nil {
			log.Panic(err)
		}
		var expired int
		if err := db.QueryRow(ctx, `SELECT count(*) FROM reservations WHERE status = 'expired'`).Scan(&expired); err != nil {
			log.Panic(err)
		}
		fmt.Println("expired", expired)
	})
	// Output: expired 1
}
