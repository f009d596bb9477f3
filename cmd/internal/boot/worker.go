package boot

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/telemetry/export"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/requests"
)

// Worker decides requests: the lanes that WORKER_LANES names, their wakes
// through River, their ticks, and maintenance.
type Worker struct {
	program *Program
	// drains is for the drains. River, maintenance, the detector, the recovery of
	// checkouts and the projections have separate connections.
	drains, db *pgxpool.Pool
	worker     *wiring.Worker
	health     net.Listener
	started    chan struct{} // closed once wakes are worked
}

// WorkerOptions are the differences between the separate program's worker and
// the all-in-one's.
type WorkerOptions struct {
	// MaintenanceByTicker runs maintenance by a ticker of this process instead
	// of River's periodic jobs.
	MaintenanceByTicker bool
	// Finished receives the requests that the lanes finish; see
	// queues.DrainConfig.
	Finished func([]requests.Request)
	// Health serves /livez, /readyz, /health and /metrics on PORT.
	Health bool
}

// NewWorker opens what a worker needs. The caller must call Run, which closes
// all of it again.
func NewWorker(ctx context.Context, p *Program, options WorkerOptions) (_ *Worker, err error) {
	w := &Worker{program: p, started: make(chan struct{})}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.db, err = p.openReady(ctx, pool{name: "worker", conns: workerConns, parameters: shortStatements}); err != nil {
		return nil, err
	}
	if w.drains, err = p.openDrains(ctx); err != nil {
		return nil, err
	}
	inserter, err := queues.NewWakeInserter(w.db)
	if err != nil {
		return nil, err
	}
	config, err := p.workerConfig(options)
	if err != nil {
		return nil, err
	}
	if w.worker, err = wiring.NewWorker(w.db, w.drains, inserter, config); err != nil {
		return nil, err
	}
	if err := p.listenMetrics(ctx); err != nil {
		return nil, err
	}
	if options.Health {
		w.health, err = listen(ctx, "", p.Config.Port)
	}
	return w, err
}

// workerConns is how many connections a worker has for River, maintenance, the
// detector, the recovery of checkouts and the projections.
const workerConns = 7

func (p *Program) workerConfig(o WorkerOptions) (wiring.WorkerConfig, error) {
	c := wiring.WorkerConfig{
		Log: p.Log, RiverLog: p.logs.river(), Hot: p.hotLane(), Normal: p.normalLane(),
		Detector: p.detectorConfig(), Projections: p.Config.Projections, Ticker: o.MaintenanceByTicker,
	}
	for _, lane := range []*queues.LaneConfig{c.Hot, c.Normal} {
		if lane != nil {
			lane.Finished = o.Finished
		}
	}
	if export.TracesAsked() {
		c.Middleware = []rivertype.Middleware{otelriver.NewMiddleware(nil)}
	}
	c.StopTimeout, c.CloseTimeout = p.stopTimes()
	var err error
	c.Maintenance, err = p.maintenanceConfig()
	return c, err
}

// Run serves until ctx ends. Then it lets running wakes end, stops, and closes
// everything.
func (w *Worker) Run(ctx context.Context) error {
	defer w.close()
	// What continues while the wakes end has a separate context.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := w.program.awaitLong(ctx, func() error { return w.start(running) }); err != nil {
		if ctx.Err() != nil { // stopped before it was ready
			return nil
		}
		return err
	}
	group, failed := errgroup.WithContext(running)
	working, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(failed, end)
	group.Go(func() error {
		defer stop()
		return w.worker.Run(working)
	})
	group.Go(func() error { return w.program.state.run(failed, w.db) })
	group.Go(func() error { return w.program.serveMetrics(failed) })
	if w.health != nil {
		group.Go(func() error { return w.serveHealth(working) })
	}
	w.logStart(ctx)
	close(w.started)
	return group.Wait()
}

// start starts the River client. The client runs with the context it starts
// with, so that context is ended if the start takes longer than attemptMax.
func (w *Worker) start(running context.Context) error {
	running, cancel := context.WithCancelCause(running)
	timer := time.AfterFunc(attemptMax, func() { cancel(context.DeadlineExceeded) })
	err := w.worker.Start(running)
	if !timer.Stop() {
		err = fmt.Errorf("start the River client: %w", context.Cause(running))
	}
	if err != nil {
		cancel(err)
	}
	return err
}

// logStart logs what the worker serves, and where it reports its health.
func (w *Worker) logStart(ctx context.Context) {
	about := []any{"lanes", w.program.Config.Lanes.Served, "version", ThisVersion()}
	if w.health != nil {
		about = append(about, "health", w.health.Addr().String())
	}
	w.program.Log.InfoContext(ctx, "the worker serves", about...)
}

func (w *Worker) close() {
	if w.health != nil {
		_ = w.health.Close() // closed already where it was served
	}
	closePools(w.drains, w.db)
}
