package boot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/tenants"
)

// API serves the HTTP API over the database, or over several that are cells.
type API struct {
	program  *Program
	cells    []*apiCell
	handler  http.Handler
	listener net.Listener
	// bodiless bounds the connections of a page beside the API.
	bodiless func(http.Handler) http.Handler
	// stop makes the handler give up soon on request bodies that are still
	// arriving.
	stop context.CancelFunc
}

// apiCell is the API over one database: it accepts requests in groups and
// reports their outcomes.
type apiCell struct {
	program *Program
	// calls is for what a call reads and does itself. The intake has separate
	// connections, so that many readers do not delay the next group. API keys
	// are also looked up on separate connections: a call that only adds does
	// not wait behind calls that wait for a locked stock or a silent
	// connection.
	calls, admissions, keyReads *pgxpool.Pool
	liveReads                   *pgxpool.Pool // see liveConns
	keys                        *tenants.Authenticator
	hub                         *live.Hub
	client                      *holdfast.Client
	handler                     http.Handler
}

const (
	// callConns is how many calls use the database at the same time.
	callConns = 7
	// keyConns is how many look-ups of API keys run at the same time.
	keyConns = 2
	// Beside the connections that commit groups of requests, one records
	// arrivals (signalConns), one inserts wakes, one reads or counts the waiting
	// requests, one checks whether the key of a refused caller is known
	// (intakeConns), and verbConns commit groups of the synchronous verbs.
	signalConns, intakeConns, verbConns = 1, 3, 3
)

// APIOptions are where the API is served, and what beside it.
type APIOptions struct {
	// Host is the interface; empty: all of them.
	Host string
	// Links are pages that the caller serves beside the API and the dashboard.
	Links []httpapi.Link
}

// NewAPI opens what the API needs and listens on PORT. The caller must call
// Run, which closes all of it again.
func NewAPI(ctx context.Context, p *Program, o APIOptions) (_ *API, err error) {
	a := &API{program: p}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	// The port comes first: a port in use is the most common mistake, and quick
	// to detect.
	if a.listener, err = listen(ctx, o.Host, p.Config.Port); err != nil {
		return nil, err
	}
	if err := p.listenMetrics(ctx); err != nil {
		return nil, err
	}
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	a.bodiless = func(page http.Handler) http.Handler { return httpapi.Bodiless(stopping, page) }
	if p.Config.Dashboard {
		o.Links = append([]httpapi.Link{dashboardLink}, o.Links...)
	}
	var pools []*pgxpool.Pool
	for _, own := range p.inCells() {
		cell, err := own.newAPICell(ctx, stopping, o.Links)
		if err != nil {
			return nil, own.inCell(err)
		}
		a.cells = append(a.cells, cell)
		pools = append(pools, cell.calls)
	}
	if err := p.requireApart(ctx, pools); err != nil {
		return nil, err
	}
	a.handler = newFront(a.cells)
	a.addDashboard()
	return a, nil
}

func (p *Program) newAPICell(ctx, stopping context.Context, links []httpapi.Link) (_ *apiCell, err error) {
	c := &apiCell{program: p}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	conns := callConns
	if p.Config.Database.Connections > 0 {
		conns = p.Config.Database.Connections
	}
	if c.calls, err = p.openReady(ctx, pool{name: "calls", conns: conns, parameters: shortStatements}); err != nil {
		return nil, err
	}
	if err := p.requireOpen(ctx, c.calls); err != nil {
		return nil, err
	}
	if c.admissions, err = p.open(ctx, pool{name: "admissions", conns: len(lanes.All())*admission.Committers(p.Config.Metered.On) + intakeConns + signalConns + verbConns, parameters: shortLocks, hotPath: true}); err != nil {
		return nil, err
	}
	if c.keyReads, err = p.open(ctx, pool{name: "keys", conns: keyConns, parameters: shortStatements}); err != nil {
		return nil, err
	}
	c.keys = tenants.NewAuthenticator(c.keyReads, tenants.Config{})
	if c.client, err = c.newClient(); err != nil {
		return nil, err
	}
	if c.hub, c.liveReads, err = p.newHub(ctx); err != nil {
		return nil, err
	}
	c.handler, err = c.newHandler(stopping, links)
	return c, err
}

// newClient makes the client of the calls, which decides and maintains nothing
// that another process can.
func (c *apiCell) newClient() (*holdfast.Client, error) {
	config, err := c.program.clientConfig()
	if err != nil {
		return nil, err
	}
	config.NoLanes, config.NoMaintenance, config.NoProjections = true, true, true
	config.IntakePool = c.admissions
	config.StopTimeout = config.CloseTimeout / 2
	return holdfast.New(c.calls, &config)
}

// URL is where the API is served, as the same machine reaches it.
func (a *API) URL() string {
	_, port, err := net.SplitHostPort(a.listener.Addr().String())
	if err != nil { // an address of our own listener
		return "http://" + a.listener.Addr().String()
	}
	return "http://127.0.0.1:" + port
}

// Run serves until ctx ends. Then it accepts no more calls, answers waiting
// callers with the current state, lets calls in flight end, commits the
// intake's queue, and closes everything.
func (a *API) Run(ctx context.Context) error {
	defer a.close()
	// The calls in flight outlive ctx.
	background := context.WithoutCancel(ctx)
	group, failed := errgroup.WithContext(background)
	watching, stopWatching := context.WithCancel(failed)
	defer stopWatching()
	serving, stopServing := context.WithCancel(ctx)
	defer stopServing()
	for _, c := range a.cells {
		if err := c.start(ctx, stopServing); err != nil {
			if ctx.Err() != nil { // stopped before it was ready
				err = nil
			}
			return errors.Join(err, a.stopClients(background))
		}
		group.Go(func() error { return c.hub.Run(watching) })
		group.Go(func() error { return c.program.state.run(watching, c.calls) })
	}
	group.Go(func() error { return a.program.serveMetrics(watching) })

	a.program.Log.InfoContext(ctx, "the API serves", "address", a.listener.Addr().String(), "version", ThisVersion())
	working, closing := a.program.stopTimes()
	calls, cut := context.WithCancel(background)
	defer cut()
	server := newServer(a.handler, a.program.Log)
	server.BaseContext = func(net.Listener) context.Context { return calls }
	served := serve(serving, server, a.listener, working, func() {
		a.stop()
		for _, c := range a.cells {
			c.client.EndWaits()
		}
		stopWatching()
		// A call that the database has not answered by then is answered without
		// it.
		time.AfterFunc(working-closing/2, cut)
	})
	stopWatching()
	stopping, cancel := context.WithTimeout(background, closing)
	defer cancel()
	return errors.Join(served, a.stopClients(stopping), waitFor(group, closing))
}

// start starts the client of the cell. The API stops serving when the client is
// stopped, or cannot go on.
func (c *apiCell) start(ctx context.Context, stopServing func()) error {
	if err := c.program.startClient(ctx, c.client); err != nil {
		return c.program.inCell(err)
	}
	go func() {
		<-c.client.Done()
		stopServing()
	}()
	return nil
}

// stopClients stops the clients of all cells at the same time.
func (a *API) stopClients(ctx context.Context) error {
	var group errgroup.Group
	for _, c := range a.cells {
		group.Go(func() error { return c.client.Stop(ctx) })
	}
	return group.Wait()
}

// waitFor waits for the group for a bounded time. The end of the process cuts
// off what is still running.
func waitFor(group *errgroup.Group, within time.Duration) error {
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return fmt.Errorf("the last group was not committed within %s of the stop", within)
	}
}

func (a *API) close() {
	if a.stop != nil {
		a.stop()
	}
	if a.listener != nil {
		_ = a.listener.Close() // closed already where it was served
	}
	for _, c := range a.cells {
		c.close()
	}
}

func (c *apiCell) close() { closePools(c.calls, c.admissions, c.keyReads, c.liveReads) }

// GuardedError means that a variant requires an admission token, but the API
// would not check tokens.
type GuardedError struct{ inventory.Ref }

func (e *GuardedError) Error() string {
	return fmt.Sprintf("variant %q of tenant %s requires an admission token, and without METERED_COMMANDS_ENABLED every caller would be admitted: "+
		"set METERED_COMMANDS_ENABLED=true, or first set the admission of every such variant to open", e.VariantID, e.TenantID)
}

// requireOpen refuses a database with a variant that requires an admission
// token, where commands are not metered. It checks once, at the start; /readyz
// repeats the check.
func (p *Program) requireOpen(ctx context.Context, db *pgxpool.Pool) error {
	if p.Config.Metered.On {
		return nil
	}
	return p.await(ctx, func(ctx context.Context) error {
		guarded, err := inventory.FirstRequiringToken(ctx, db)
		if err == nil && guarded != nil {
			err = &GuardedError{*guarded}
		}
		return err
	})
}
