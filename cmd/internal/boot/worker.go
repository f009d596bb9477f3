package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/telemetry/export"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// Worker decides requests: the lanes that WORKER_LANES names, their wakes through River, their ticks, and maintenance.
type Worker struct {
	program *Program
	// drains is for what decides; River, maintenance and the detector have connections of their own.
	drains, db *pgxpool.Pool
	lanes      []*queues.Lane
	bell       *queues.Bell
	client     *queues.Client // nil until it is started
	detect     *hot.Detector  // nil: none runs here
	upkeep     *upkeep
	plain      bool
	health     net.Listener
	started    chan struct{} // closed once wakes are worked
}

// WorkerOptions say how a worker differs between the separate program and the all-in-one.
type WorkerOptions struct {
	// PlainUpkeep runs maintenance by a ticker of this process in place of River's periodic jobs.
	PlainUpkeep bool
	// Finished receives what the lanes finish; see queues.DrainConfig.
	Finished func([]requests.Request)
	// Health serves /livez, /readyz, /health and /metrics on PORT.
	Health bool
}

// NewWorker opens what a worker needs. Run must follow: it closes that again.
func NewWorker(ctx context.Context, p *Program, options WorkerOptions) (_ *Worker, err error) {
	w := &Worker{program: p, plain: options.PlainUpkeep, started: make(chan struct{})}
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
	if w.upkeep, err = newUpkeep(p, w.db); err != nil {
		return nil, err
	}
	if w.bell, err = queues.NewBell(w.db); err != nil {
		return nil, err
	}
	if w.detect, err = p.detector(w.db, w.bell); err != nil {
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

// workerConns is how many connections a worker has for River, maintenance and the detector.
const workerConns = 5

// openDrains makes the pool of the lanes: a connection for each drain that runs at one time, and one for the lane's ticks and
// isolated retries. If all hot drains wait for hot stocks, the normal lane still has its own.
func (p *Program) openDrains(ctx context.Context) (*pgxpool.Pool, error) {
	conns := 0
	if p.serves(requests.Hot) {
		conns += p.Config.Lanes.HotConcurrency + 1
	}
	if p.serves(requests.Normal) {
		conns += p.Config.Lanes.NormalConcurrency + 1 + 1 // for diverted tenants
	}
	if p.Config.Database.Connections > 0 {
		conns = p.Config.Database.Connections
	}
	return p.openReady(ctx, pool{name: "drains", conns: conns, parameters: shortStatements, busiest: true})
}

func (p *Program) serves(lane string) bool { return slices.Contains(p.Config.Lanes.Served, lane) }

// lanes makes the lanes this process serves, in its part of the task: the slots of the hot lane are divided between the
// tasks, and the normal lane is for all, because its drains share it anyway.
func (p *Program) lanes(db *pgxpool.Pool, finished func([]requests.Request)) (lanes []*queues.Lane, err error) {
	c := &p.Config.Lanes
	drain := queues.DrainConfig{AgeMax: c.QueueAgeMax, Terms: p.terms(), Finished: finished}
	working, _ := p.stopTimes()
	depthMax := p.Config.Intake.DepthMax
	if p.serves(requests.Hot) {
		drain.Batch = c.HotBatch
		lane, err := hot.NewLane(db, p.Log, queues.LaneConfig{
			DrainConfig: drain, Part: p.Config.Task.Index, Parts: p.Config.Task.Count, Concurrency: c.HotConcurrency,
			DepthMax: depthMax, StopTimeout: working,
		})
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, lane)
	}
	if p.serves(requests.Normal) {
		drain.Batch = c.NormalBatch
		lane, err := normal.NewLane(db, p.Log, queues.LaneConfig{DrainConfig: drain, Concurrency: c.NormalConcurrency, DepthMax: depthMax, StopTimeout: working})
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, lane)
	}
	return lanes, nil
}

// newClient makes the River client. Every worker knows every kind of job, whichever lanes it serves, because the one
// that leads discards kinds it does not know.
func (w *Worker) newClient() (*queues.Client, error) {
	working, _ := w.program.stopTimes()
	c := queues.WorkerConfig{Workers: river.NewWorkers(), SoftStop: working}
	if export.TracesAsked() {
		c.Middleware = []rivertype.Middleware{otelriver.NewMiddleware(nil)}
	}
	if err := w.upkeep.register(&c, w.plain); err != nil {
		return nil, err
	}
	return queues.NewClient(w.db, w.program.logs.river(), w.lanes, c)
}

// Run serves until ctx ends, then lets running wakes end and stops, and closes everything.
func (w *Worker) Run(ctx context.Context) error {
	defer w.close()
	// What runs on while the wakes end has a context of its own.
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
	if w.plain {
		group.Go(func() error { return w.upkeep.run(failed) })
	}
	group.Go(func() error { return w.program.state.run(failed, w.db) })
	group.Go(func() error { return w.program.serveMetrics(failed) })
	serving, endServing := context.WithCancel(failed)
	defer endServing()
	if w.health != nil {
		group.Go(func() error { return w.serveHealth(serving) })
	}
	w.announce(ctx)
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

// startClient makes the River client and starts it. The context it starts with is also the one it runs with, so that is
// ended if the start takes longer than attemptMax.
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

// announce logs what the worker serves, and where it tells of its health.
func (w *Worker) announce(ctx context.Context) {
	about := []any{"lanes", w.program.Config.Lanes.Served, "version", ThisVersion()}
	if w.health != nil {
		about = append(about, "health", w.health.Addr().String())
	}
	w.program.Log.InfoContext(ctx, "the worker serves", about...)
}

// stopClient lets the running jobs end, and cancels those that take longer than they may. A client that has not stopped by
// then waits for a connection that does not answer, also where the database answers others by now. It is left as it is: its
// jobs are worked by others.
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
