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

	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/verbs"
)

// API serves the HTTP API: it accepts requests in groups and tells of their outcomes.
type API struct {
	program *Program
	// calls is for what a call reads and does itself. The intake has connections of its own, so that no crowd of readers
	// keeps the next group waiting.
	// API keys are looked up on connections of their own, so that calls that wait for a locked stock or a silent
	// connection do not keep those waiting that only add.
	calls, admissions, keys *pgxpool.Pool
	intake                  *requests.Intake
	bell                    *queues.Bell
	direct                  *queues.Direct
	groups                  *verbs.Groups
	signals                 *hot.Signals // nil where HOT_DETECT is off
	watcher                 *requests.Watcher
	handler                 http.Handler
	listener                net.Listener
	// stop has the handler leave bodies that are still arriving little more time.
	stop context.CancelFunc
}

const (
	// callConns is how many calls have the database at one time.
	callConns = 7
	// keyConns is how many look-ups of API keys have.
	keyConns = 2
)

// NewAPI opens what the API needs and takes its port: PORT, on all interfaces unless host names one. Run must follow: it
// closes that again.
func NewAPI(ctx context.Context, p *Program, host string) (_ *API, err error) {
	a := &API{program: p}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	// The port first: that it is taken is the commonest mistake, and quickly told.
	if a.listener, err = listen(ctx, host, p.Config.Port); err != nil {
		return nil, err
	}
	if err := p.listenMetrics(ctx); err != nil {
		return nil, err
	}
	conns := callConns
	if p.Config.Database.Connections > 0 {
		conns = p.Config.Database.Connections
	}
	if a.calls, err = p.openReady(ctx, pool{name: "calls", conns: conns, parameters: shortStatements}); err != nil {
		return nil, err
	}
	if err := p.requireOpen(ctx, a.calls); err != nil {
		return nil, err
	}
	if a.admissions, err = p.open(ctx, pool{name: "admissions", conns: lanes*p.committers() + lookers + noters + groupers, parameters: shortLocks, busiest: true}); err != nil {
		return nil, err
	}
	if a.keys, err = p.open(ctx, pool{name: "keys", conns: keyConns, parameters: shortStatements}); err != nil {
		return nil, err
	}
	a.bell, err = queues.NewBell(a.admissions)
	if err != nil {
		return nil, err
	}
	intake := p.intakeConfig()
	intake.Load = queues.NewLoad(a.admissions, intake.DepthMax).Read
	if p.Config.Detect.On {
		a.signals = hot.NewSignals(a.admissions, p.Log)
		intake.Observe = a.signals.Observe
	}
	if a.direct, err = queues.NewDirect(a.admissions, p.Log, queues.DrainConfig{AgeMax: p.Config.Lanes.QueueAgeMax, Terms: p.terms()}); err != nil {
		return nil, err
	}
	intake.Decider = a.direct
	if a.intake, err = requests.NewIntake(a.admissions, a.bell, intake); err != nil {
		return nil, err
	}
	if a.groups, err = verbs.New(a.admissions, p.groupsConfig()); err != nil {
		return nil, err
	}
	a.watcher = requests.NewWatcher(a.calls, p.Log)
	stopping, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stop = stop
	a.handler, err = a.newHandler(stopping, a.bell)
	return a, err
}

// URL is where the API is served, as the same machine reaches it.
func (a *API) URL() string {
	_, port, err := net.SplitHostPort(a.listener.Addr().String())
	if err != nil { // an address of our own listener
		return "http://" + a.listener.Addr().String()
	}
	return "http://127.0.0.1:" + port
}

// Run serves until ctx ends. Then it accepts no more, answers who waits with what there is, lets what is in flight be
// answered, commits what stands in the intake's line, and closes everything.
func (a *API) Run(ctx context.Context) error {
	defer a.close()
	// What answers the calls in flight outlasts ctx.
	background := context.WithoutCancel(ctx)
	group, failed := errgroup.WithContext(background)
	watching, stopWatching := context.WithCancel(failed)
	defer stopWatching()
	admitting, stopAdmitting := context.WithCancel(failed)
	defer stopAdmitting()
	group.Go(func() error { return a.watcher.Run(watching) })
	group.Go(func() error { return a.intake.Run(admitting) })
	group.Go(func() error { return a.direct.Run(admitting) })
	group.Go(func() error { return a.groups.Run(admitting) })
	if a.signals != nil {
		group.Go(func() error { return a.signals.Run(admitting) })
	}

	group.Go(func() error { return a.program.state.run(watching, a.calls) })
	group.Go(func() error { return a.program.serveMetrics(watching) })

	a.program.Log.InfoContext(ctx, "the API serves", "address", a.listener.Addr().String(), "version", ThisVersion())
	working, closing := a.program.stopTimes()
	calls, cut := context.WithCancel(background)
	defer cut()
	server := newServer(a.handler, a.program.Log)
	server.BaseContext = func(net.Listener) context.Context { return calls }
	served := serve(ctx, server, a.listener, working, func() {
		a.stop()
		stopWatching()
		// What the database has not answered by then is answered without it.
		time.AfterFunc(working-closing/2, cut)
	})
	stopWatching()
	stopAdmitting()
	return errors.Join(served, waitFor(group, closing))
}

// waitFor waits for the group, but not for ever: what it still does, the process's end will cut off.
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
	closePools(a.calls, a.admissions, a.keys)
}
