package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
)

// WorkerConfig configures a [Worker]. A part that is nil, or false, is left to
// other processes.
type WorkerConfig struct {
	Log *slog.Logger
	// Hot and Normal are the lanes whose requests the worker decides.
	Hot, Normal *queues.LaneConfig
	// Detector moves variants between the lanes. Of all processes that run one,
	// one decides at a time.
	Detector *hot.DetectorConfig
	// Projections folds the audit log into the ready projections.
	Projections bool
	// Maintenance are the passes. Those with a schedule are periodic jobs of
	// River, or run by a ticker of this process.
	Maintenance *MaintenanceConfig
	Ticker      bool

	// River is the program's own River client, to whose configuration the lanes
	// are added, which needs Ticker. Nil: a worker with a lane has its own,
	// which logs to RiverLog (default Log) and calls Middleware.
	River      *river.Config
	RiverLog   *slog.Logger
	Middleware []rivertype.Middleware

	// StopTimeout is how long running wakes may take to end; CloseTimeout is how
	// long the rest may take after them.
	StopTimeout, CloseTimeout time.Duration
}

// Worker decides requests, and does what keeps the house: the lanes, their
// wakes through River, their ticks, the detector, the projections and the
// passes.
type Worker struct {
	Lanes []*queues.Lane

	db          *pgxpool.Pool
	config      WorkerConfig
	river       *queues.Client // nil until it is started, or if the worker has none of its own
	detector    *hot.Detector
	projections *Projections
	passes      *Passes
}

// NewWorker makes a worker. Its lanes use the pool drains, and all else db.
func NewWorker(db, drains *pgxpool.Pool, inserter *queues.WakeInserter, c WorkerConfig) (_ *Worker, err error) {
	if c.RiverLog == nil {
		c.RiverLog = c.Log
	}
	for _, lane := range []**queues.LaneConfig{&c.Hot, &c.Normal} {
		if *lane != nil {
			own := **lane
			own.Wake = inserter.Notify
			*lane = &own
		}
	}
	w := &Worker{db: db, config: c, passes: &Passes{Log: c.Log}}
	if w.Lanes, err = NewLanes(drains, c.Log, c.Hot, c.Normal); err != nil {
		return nil, err
	}
	if c.Detector != nil {
		if w.detector, err = hot.NewDetector(db, inserter, c.Log, *c.Detector); err != nil {
			return nil, err
		}
	}
	if c.Projections {
		if w.projections, err = NewProjections(db, c.Log); err != nil {
			return nil, err
		}
	}
	if c.Maintenance != nil {
		maintenance, err := NewMaintenance(db, *c.Maintenance)
		if err != nil {
			return nil, err
		}
		w.passes = maintenance.Passes()
	}
	if c.River != nil {
		err = queues.Configure(c.River, w.Lanes...)
	}
	return w, err
}

// NewLanes makes the lanes that are not nil.
func NewLanes(db *pgxpool.Pool, log *slog.Logger, hotLane, normalLane *queues.LaneConfig) (made []*queues.Lane, err error) {
	for _, lane := range []struct {
		config *queues.LaneConfig
		make   func(*pgxpool.Pool, *slog.Logger, queues.LaneConfig) (*queues.Lane, error)
	}{{hotLane, hot.NewLane}, {normalLane, normal.NewLane}} {
		if lane.config == nil {
			continue
		}
		lane, err := lane.make(db, log, *lane.config)
		if err != nil {
			return nil, err
		}
		made = append(made, lane)
	}
	return made, nil
}

// Start starts the worker's own River client, if it has one. The client runs
// until Run stops it, or until ctx ends. After an error, Start may be called
// again.
func (w *Worker) Start(ctx context.Context) error {
	if len(w.Lanes) == 0 || w.config.River != nil {
		return nil
	}
	c := queues.WorkerConfig{Workers: river.NewWorkers(), SoftStop: w.config.StopTimeout, Middleware: w.config.Middleware}
	register(w.passes, &c, w.config.Ticker)
	client, err := queues.NewClient(w.db, w.config.RiverLog, w.Lanes, c)
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		return fmt.Errorf("start the River client: %w", err)
	}
	w.river = client
	return nil
}

// Run works until ctx ends or a part fails. Then it lets the running wakes end,
// and stops the River client and the rest.
func (w *Worker) Run(ctx context.Context) error {
	// What continues while the wakes end has a separate context.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(running)
	draining, endDraining := context.WithCancel(failed)
	defer endDraining()
	for _, lane := range w.Lanes {
		group.Go(func() error { return lane.Run(draining) })
	}
	if len(w.Lanes) > 0 {
		group.Go(func() error { return queues.Listen(draining, w.db, w.config.Log, w.Lanes...) })
	}
	if w.detector != nil {
		group.Go(func() error { return w.detector.Run(failed) })
	}
	if w.projections != nil {
		group.Go(func() error { return w.projections.run(failed) })
	}
	group.Go(func() error { return w.passes.RunFrequent(failed, w.config.CloseTimeout/2) })
	if w.config.Ticker {
		group.Go(func() error { return w.passes.Run(failed) })
	}
	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	endDraining()
	err := w.stopRiver(ctx)
	stop()
	return errors.Join(group.Wait(), err)
}

// stopRiver lets the running jobs end, and cancels those that exceed their
// time. A client that has not stopped by then waits for a connection that does
// not answer, even if the database answers others by now. It is abandoned:
// other workers take its jobs.
func (w *Worker) stopRiver(ctx context.Context) error {
	if w.river == nil {
		return nil
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.config.StopTimeout+w.config.CloseTimeout/4)
	defer cancel()
	err := w.river.Stop(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		w.config.Log.WarnContext(ctx, "the River client was not stopped in time; its jobs are worked by others", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop the River client: %w", err)
	}
	return nil
}
