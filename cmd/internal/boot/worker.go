package boot

import (
	"context"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast"
)

// Worker decides requests: the lanes that WORKER_LANES names, their wakes
// through River, their ticks, and maintenance.
type Worker struct {
	program *Program
	// drains is for the drains. River, maintenance, the detector, the recovery of
	// checkouts and the projections have separate connections.
	drains, db *pgxpool.Pool
	client     *holdfast.Client
	health     net.Listener
	started    chan struct{} // closed once wakes are worked
}

// WorkerOptions are the differences between the separate program's worker and
// the all-in-one's.
type WorkerOptions struct {
	// MaintenanceByTicker runs maintenance by a ticker of this process instead
	// of River's periodic jobs.
	MaintenanceByTicker bool
	// Beside is the client of an API in this process; see holdfast.Config.
	Beside *holdfast.Client
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
	config, err := p.clientConfig()
	if err != nil {
		return nil, err
	}
	config.NoIntake, config.MaintenanceByRiver = true, !options.MaintenanceByTicker
	config.LanePool, config.Beside = w.drains, options.Beside
	if w.client, err = holdfast.New(w.db, &config); err != nil {
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

// Run serves until ctx ends. Then it lets running wakes end, stops, and closes
// everything.
func (w *Worker) Run(ctx context.Context) error {
	defer w.close()
	background := context.WithoutCancel(ctx)
	if err := w.program.startClient(ctx, w.client); err != nil {
		if ctx.Err() != nil { // stopped before it was ready
			return nil
		}
		return err
	}
	running, stop := context.WithCancel(background)
	defer stop()
	group, failed := errgroup.WithContext(running)
	working, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(failed, end)
	group.Go(func() error {
		defer stop()
		select {
		case <-working.Done():
		case <-w.client.Done():
			end()
		}
		return w.client.Stop(background) // each part has its own bound
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
