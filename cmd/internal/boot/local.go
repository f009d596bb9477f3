package boot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/internal/tenants"
)

// Local is the all-in-one: the API and a worker in this process, on
// DATABASE_URL or a private Postgres, with a development tenant and a key that
// has all scopes.
type Local struct {
	// URL is the API's, Key the development key, Database the database's URL
	// with its password.
	URL, Key, Database string
	// Dashboard is the address of the dashboard, with the key, so that it needs
	// no further sign-in; empty if DASHBOARD is off.
	Dashboard string
	// Storefront is the address of the sample storefront; empty without it.
	Storefront string

	program  *Program
	postgres *pgdev.Server
	stopping atomic.Bool // the private Postgres is stopped
	stop     context.CancelFunc
	ended    chan struct{} // closed after err is set
	err      error

	mu sync.Mutex
	// made are the keys that were made for this run only.
	made []tenants.Key
}

// LocalOptions are what the all-in-one may do besides.
type LocalOptions struct {
	// Dir stores the private Postgres's data and the keys. If it is empty, all
	// of it is deleted when the all-in-one stops. It is valid with a private
	// Postgres only.
	Dir string
	// Storefront serves the sample storefront at /demo/.
	Storefront bool
}

// StartLocal starts the all-in-one on PORT of the loopback interface and
// returns once its own /readyz answers. ctx bounds the start only. The caller
// must call Stop.
func StartLocal(ctx context.Context, p *Program, o LocalOptions) (_ *Local, err error) {
	own := *p // its database may be the private one
	l := &Local{program: &own, ended: make(chan struct{})}
	defer func() {
		if err != nil && l.stop == nil {
			err = errors.Join(err, l.discard())
		}
	}()
	if err := l.openDatabase(ctx, o.Dir); err != nil {
		return nil, err
	}
	options := APIOptions{Host: loopback}
	if o.Storefront {
		options.Links = []httpapi.Link{storefrontLink}
	}
	api, err := NewAPI(ctx, l.program, options)
	if err != nil {
		return nil, err
	}
	worker, err := NewWorker(ctx, l.program, WorkerOptions{MaintenanceByTicker: true, Beside: api})
	if err != nil {
		api.close()
		return nil, err
	}
	err = l.program.await(ctx, func(ctx context.Context) (err error) {
		l.Key, err = l.makeKey(ctx, api.cells[0].calls, developmentKey, o.Dir)
		return err
	})
	if err == nil && o.Storefront {
		err = l.addStorefront(api, o.Dir)
	}
	if err != nil {
		api.close()
		worker.close()
		return nil, err
	}
	api.onlyLoopback()
	l.URL = api.URL()
	l.Dashboard = l.program.dashboardURL(l.URL, l.Key)
	l.run(context.WithoutCancel(ctx), api, worker)
	if err := l.awaitReady(ctx, worker.started); err != nil {
		return nil, errors.Join(err, l.Stop())
	}
	return l, nil
}

// openDatabase starts the private Postgres unless DATABASE_URL names one, and
// migrates.
func (l *Local) openDatabase(ctx context.Context, dir string) (err error) {
	c := &l.program.Config.Database
	if c.Named() && dir != "" {
		return &UsageError{"DATABASE_URL or CELLS names a database, so there is no private Postgres whose data a folder could keep: leave one of them out"}
	}
	if !c.Named() {
		interrupted := context.AfterFunc(ctx, func() { l.stopping.Store(true) })
		defer interrupted()
		l.postgres, err = pgdev.Start(ctx, pgdev.Options{Dir: dir, Log: postgresLog{l.program.Log, &l.stopping}})
		if err != nil {
			return err
		}
		c.URL = l.postgres.URL("postgres")
	}
	l.Database = cmp.Or(c.URL, l.program.inCells()[0].Config.Database.URL)
	_, err = l.program.Migrate(ctx)
	return err
}

// run runs both parts until Stop, or until one of them fails or the private
// Postgres ends.
func (l *Local) run(ctx context.Context, api *API, worker *Worker) {
	ctx, l.stop = context.WithCancel(ctx)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return api.Run(running) })
	group.Go(func() error { return worker.Run(running) })
	if l.postgres != nil {
		group.Go(func() error {
			select {
			case <-l.postgres.Done():
				return errors.New("the private Postgres ended unexpectedly")
			case <-running.Done():
				return nil
			}
		})
	}
	go func() {
		l.err = group.Wait()
		close(l.ended)
	}()
}

// readyWithin is how long the parts may take to become ready, beyond their wait
// for the database.
const readyWithin = 15 * time.Second

// awaitReady waits for the worker, and polls the API over HTTP, as a client
// does.
func (l *Local) awaitReady(ctx context.Context, worker <-chan struct{}) error {
	within := readyWithin + l.program.Config.Database.WaitMax
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-worker:
	case <-l.ended: // the code below finds the reason
	case <-ctx.Done():
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, l.URL+"/readyz", http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/readyz answers %s", response.Status)
		}
		select {
		case <-l.ended:
			return errors.New("it stopped while it started")
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s: %w", within, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Done is closed when the all-in-one has ended, after Stop or a failure.
func (l *Local) Done() <-chan struct{} { return l.ended }

// Stop ends both parts, revokes the keys that were made for this run only, and
// then stops the private Postgres. It returns the errors of the run, including
// those before the call.
func (l *Local) Stop() error {
	l.stop()
	<-l.ended
	return errors.Join(l.err, l.discard())
}

// discard revokes the keys of this run and stops the private Postgres. A
// temporary Postgres is gone with its keys.
func (l *Local) discard() (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.postgres == nil {
		err = l.program.revokeKeys(l.made)
	}
	return errors.Join(err, l.stopPostgres())
}

func (l *Local) stopPostgres() error {
	if l.postgres == nil {
		return nil
	}
	l.stopping.Store(true)
	return l.postgres.Stop()
}

// postgresLog logs the lines of a private Postgres: errors and warnings at
// warn, all others at debug. The server writes whole lines.
type postgresLog struct {
	log *slog.Logger
	// stopping is set before this process stops the server.
	stopping *atomic.Bool
}

// errorLine finds lines that an operator should read. Ordinary lines are
// excepted: a server that starts refuses connections, a statement is cancelled
// when its caller is gone, and one that waits for a lock for too long is tried
// again. shutdownLine finds what a server that is stopped writes about its
// sessions and to new callers.
var (
	errorLine    = regexp.MustCompile(`(WARNING|ERROR|FATAL|PANIC): {2}`)
	ordinaryLine = regexp.MustCompile(`the database system is starting up|canceling statement due to (user request|lock timeout)`)
	shutdownLine = regexp.MustCompile(`due to administrator command|the database system is shutting down`)
)

// Write logs each line of p.
func (l postgresLog) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		level := slog.LevelDebug
		expected := ordinaryLine.Match(line) || l.stopping.Load() && shutdownLine.Match(line)
		if errorLine.Match(line) && !expected {
			level = slog.LevelWarn
		}
		l.log.Log(context.Background(), level, "Postgres logged a line", "line", string(bytes.TrimSpace(line)))
	}
	return len(p), nil
}
