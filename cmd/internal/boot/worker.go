package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/telemetry/export"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/sweeper"
)

// Worker decides requests: the lanes that WORKER_LANES names, their wakes
// through River, their ticks, and maintenance.
type Worker struct {
	program *Program
	// drains is for the drains. River, maintenance, the detector, the recovery of
	// checkouts and the projections have separate connections.
	drains, db          *pgxpool.Pool
	lanes               []*queues.Lane
	inserter            *queues.WakeInserter
	client              *queues.Client // nil until it is started
	detect              *hot.Detector  // nil if none runs here
	projections         *Projections   // nil if none run here
	maintenance         *sweeper.Passes
	maintenanceByTicker bool
	health              net.Listener
	started             chan struct{} // closed once wakes are worked
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
	w := &Worker{program: p, maintenanceByTicker: options.MaintenanceByTicker, started: make(chan struct{})}
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
	if w.lanes, err = p.lanes(w.drains, options.Finished); err != nil {
		return nil, err
	}
	if w.maintenance, err = p.workerPasses(w.db); err != nil {
		return nil, err
	}
	if w.inserter, err = queues.NewWakeInserter(w.db); err != nil {
		return nil, err
	}
	if w.detect, err = p.detector(w.db, w.inserter); err != nil {
		return nil, err
	}
	if p.Config.Projections {
		if w.projections, err = p.Projections(w.db); err != nil {
			return nil, err
		}
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

// newClient makes the River client. Every worker knows every kind of job,
// regardless of its lanes, because the leader discards jobs of unknown kinds.
func (w *Worker) newClient() (*queues.Client, error) {
	working, _ := w.program.stopTimes()
	c := queues.WorkerConfig{Workers: river.NewWorkers(), SoftStop: working}
	if export.TracesAsked() {
		c.Middleware = []rivertype.Middleware{otelriver.NewMiddleware(nil)}
	}
	register(w.maintenance, &c, w.maintenanceByTicker)
	return queues.NewClient(w.db, w.program.logs.river(), w.lanes, c)
}

// Run serves until ctx ends. Then it lets running wakes end, stops, and closes
// everything.
func (w *Worker) Run(ctx context.Context) error {
	defer w.close()
	// What continues while the wakes end has a separate context.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, failed := errgroup.WithContext(running)
	if err := w.program.awaitLong(ctx, func() error { return w.startClient(running) }); err != nil {
		if ctx.Err() != nil { // stopped before it was ready
			return nil
		}
		return err
	}
	draining, endDraining := context.WithCancel(failed)
	defer endDraining()
	for _, lane := range w.lanes {
		group.Go(func() error { return lane.Run(draining) })
	}
	group.Go(func() error { return queues.Listen(draining, w.db, w.program.Log, w.lanes...) })
	if w.detect != nil {
		group.Go(func() error { return w.detect.Run(failed) })
	}
	if w.projections != nil {
		group.Go(func() error { return w.projections.run(failed) })
	}
	_, closing := w.program.stopTimes()
	group.Go(func() error { return w.maintenance.RunFrequent(failed, closing/2) })
	if w.maintenanceByTicker {
		group.Go(func() error { return w.maintenance.Run(failed) })
	}
	group.Go(func() error { return w.program.state.run(failed, w.db) })
	group.Go(func() error { return w.program.serveMetrics(failed) })
	serving, endServing := context.WithCancel(failed)
	defer endServing()
	if w.health != nil {
		group.Go(func() error { return w.serveHealth(serving) })
	}
	w.logStart(ctx)
	close(w.started)
	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	endServing()
	endDraining()
	err := w.stopClient(ctx)
	stop()
	return errors.Join(group.Wait(), err)
}

// startClient makes the River client and starts it. The client runs with the
// context it starts with, so that context is ended if the start takes longer
// than attemptMax.
func (w *Worker) startClient(running context.Context) error {
	client, err := w.newClient()
	if err != nil {
		return err
	}
	running, cancel := context.WithCancelCause(running)
	timer := time.AfterFunc(attemptMax, func() { cancel(context.DeadlineExceeded) })
	err = client.Start(running)
	if !timer.Stop() {
		err = context.Cause(running)
	}
	if err != nil {
		cancel(err)
		return fmt.Errorf("start the River client: %w", err)
	}
	w.client = client
	return nil
}

// logStart logs what the worker serves, and where it reports its health.
func (w *Worker) logStart(ctx context.Context) {
	about := []any{"lanes", w.program.Config.Lanes.Served, "version", ThisVersion()}
	if w.health != nil {
		about = append(about, "health", w.health.Addr().String())
	}
	w.program.Log.InfoContext(ctx, "the worker serves", about...)
}

// stopClient lets the running jobs end, and cancels those that exceed their
// time. A client that has not stopped by then waits for a connection that does
// not answer, even if the database answers others by now. It is abandoned:
// other workers take its jobs.
func (w *Worker) stopClient(ctx context.Context) error {
	working, closing := w.program.stopTimes()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), working+closing/4)
	defer cancel()
	err := w.client.Stop(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		w.program.Log.WarnContext(ctx, "the River client was not stopped in time; its jobs are worked by others", "error", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop the River client: %w", err)
	}
	return nil
}

func (w *Worker) close() {
	if w.health != nil {
		_ = w.health.Close() // closed already where it was served
	}
	closePools(w.drains, w.db)
}
