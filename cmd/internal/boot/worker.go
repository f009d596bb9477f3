package boot

import (
	"context"
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast"
)

// Worker decides requests: the lanes that WORKER_LANES names, their wakes
// through River, their ticks, and maintenance. It does so in each cell.
type Worker struct {
	program *Program
	cells   []*workerCell
	health  net.Listener
	started chan struct{} // closed once wakes are worked
}

// workerCell is the worker of one database.
type workerCell struct {
	program *Program
	// drains is for the drains. River, maintenance, the detector, the recovery of
	// checkouts and the projections have separate connections.
	drains, db *pgxpool.Pool
	client     *holdfast.Client
}

// WorkerOptions are the differences between the separate program's worker and
// the all-in-one's.
type WorkerOptions struct {
	// MaintenanceByTicker runs maintenance by a ticker of this process instead
	// of River's periodic jobs.
	MaintenanceByTicker bool
	// Beside is an API in this process; see holdfast.Config.
	Beside *API
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
	var pools []*pgxpool.Pool
	for i, own := range p.inCells() {
		var beside *holdfast.Client
		if options.Beside != nil {
			beside = options.Beside.cells[i].client
		}
		cell, err := own.newWorkerCell(ctx, options, beside)
		if err != nil {
			return nil, own.inCell(err)
		}
		w.cells = append(w.cells, cell)
		pools = append(pools, cell.db)
	}
	if err := p.requireApart(ctx, pools); err != nil {
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

func (p *Program) newWorkerCell(ctx context.Context, options WorkerOptions, beside *holdfast.Client) (_ *workerCell, err error) {
	c := &workerCell{program: p}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.db, err = p.openReady(ctx, pool{name: "worker", conns: workerConns, parameters: shortStatements}); err != nil {
		return nil, err
	}
	if c.drains, err = p.openDrains(ctx); err != nil {
		return nil, err
	}
	config, err := p.clientConfig()
	if err != nil {
		return nil, err
	}
	config.NoIntake, config.MaintenanceByRiver = true, !options.MaintenanceByTicker
	config.LanePool, config.Beside = c.drains, beside
	c.client, err = holdfast.New(c.db, &config)
	return c, err
}

// workerConns is how many connections a worker has for River, maintenance, the
// detector, the recovery of checkouts and the projections.
const workerConns = 7

// Run serves until ctx ends. Then it lets running wakes end, stops, and closes
// everything.
func (w *Worker) Run(ctx context.Context) error {
	defer w.close()
	background := context.WithoutCancel(ctx)
	for i, c := range w.cells {
		if err := c.program.startClient(ctx, c.client); err != nil {
			err = c.program.inCell(err)
			if ctx.Err() != nil { // stopped before it was ready
				err = nil
			}
			for _, started := range w.cells[:i] {
				err = errors.Join(err, started.client.Stop(background))
			}
			return err
		}
	}
	running, stop := context.WithCancel(background)
	defer stop()
	group, failed := errgroup.WithContext(running)
	working, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(failed, end)
	group.Go(func() error {
		defer stop()
		var clients errgroup.Group
		for _, c := range w.cells {
			clients.Go(func() error {
				select {
				case <-working.Done():
				case <-c.client.Done():
					end()
				}
				return c.client.Stop(background) // each part has its own bound
			})
		}
		return clients.Wait()
	})
	for _, c := range w.cells {
		group.Go(func() error { return c.program.state.run(failed, c.db) })
	}
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
	for _, c := range w.cells {
		c.close()
	}
}

func (c *workerCell) close() { closePools(c.drains, c.db) }
