package boot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/internal/pgdev"
	"github.com/holdfast/holdfast/tenants"
)

// LocalOptions say how the all-in-one runs.
type LocalOptions struct {
	// Dir keeps the private Postgres's data and the development key; empty: both are gone afterwards. It goes with a
	// private Postgres only.
	Dir string
}

// Local is the all-in-one: the API and a worker in this process, on DATABASE_URL or a private Postgres, with a
// development tenant and a key that opens everything.
type Local struct {
	// URL is the API's, Key the development key, Database the database's URL with its password.
	URL, Key, Database string

	program  *Program
	postgres *pgdev.Server
	stopping atomic.Bool // the private Postgres is stopped
	stop     context.CancelFunc
	ended    chan struct{} // closed after err is set
	err      error
	// made is the development key if it was made for this run only.
	made *tenants.Key
}

// StartLocal starts the all-in-one on PORT of the loopback interface and returns once its own /readyz answers. ctx
// bounds the start only; Stop must follow.
func StartLocal(ctx context.Context, p *Program, options LocalOptions) (_ *Local, err error) {
	own := *p // its database may be the private one
	l := &Local{program: &own, ended: make(chan struct{})}
	defer func() {
		if err != nil && l.stop == nil {
			err = errors.Join(err, l.stopPostgres())
		}
	}()
	if err := l.openDatabase(ctx, options.Dir); err != nil {
		return nil, err
	}
	api, err := NewAPI(ctx, l.program, loopback)
	if err != nil {
		return nil, err
	}
	worker, err := NewWorker(ctx, l.program, WorkerOptions{PlainUpkeep: true, Finished: api.watcher.Finished})
	if err != nil {
		api.close()
		return nil, err
	}
	api.bell.Attach(worker.lanes...)
	err = l.program.await(ctx, func(ctx context.Context) (err error) {
		l.Key, l.made, err = developmentKey(ctx, api.calls, options.Dir)
		return err
	})
	if err != nil {
		api.close()
		worker.close()
		return nil, err
	}
	l.URL = api.URL()
	l.run(context.WithoutCancel(ctx), api, worker)
	if err := l.awaitReady(ctx, worker.started); err != nil {
		return nil, errors.Join(err, l.Stop())
	}
	return l, nil
}

// loopback is the only interface the all-in-one serves: its key is printed.
const loopback = "127.0.0.1"

// openDatabase starts the private Postgres unless DATABASE_URL names one, and migrates.
func (l *Local) openDatabase(ctx context.Context, dir string) (err error) {
	c := &l.program.Config.Database
	if c.URL != "" && dir != "" {
		return &UsageError{"DATABASE_URL names a database, so there is no private Postgres whose data a folder could keep: leave one of them out"}
	}
	if c.URL == "" {
		interrupted := context.AfterFunc(ctx, func() { l.stopping.Store(true) })
		defer interrupted()
		l.postgres, err = pgdev.Start(ctx, pgdev.Options{Dir: dir, Log: postgresLog{l.program.Log, &l.stopping}})
		if err != nil {
			return err
		}
		c.URL = l.postgres.URL("postgres")
	}
	l.Database = c.URL
	_, err = l.program.Migrate(ctx)
	return err
}

// run runs both parts until Stop, or until one of them fails or the private Postgres ends.
func (l *Local) run(ctx context.Context, api *API, worker *Worker) {
	ctx, l.stop = context.WithCancel(ctx)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return api.Run(running) })
	group.Go(func() error { return worker.Run(running) })
	if l.postgres != nil {
		group.Go(func() error {
			select {
			case <-l.postgres.Done():
				return errors.New("the private Postgres ended by itself")
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

// readyWithin is how long the parts may take until they answer, beyond what they wait for the database.
const readyWithin = 15 * time.Second

// awaitReady waits for the worker, and asks the API over HTTP, as anybody else would.
func (l *Local) awaitReady(ctx context.Context, worker <-chan struct{}) error {
	within := readyWithin + l.program.Config.Database.WaitMax
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	select {
	case <-worker:
	case <-l.ended: // what follows tells
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

// Done is closed when the all-in-one has ended, by Stop or by itself.
func (l *Local) Done() <-chan struct{} { return l.ended }

// Stop ends both parts, revokes a key that was made for this run only, and then stops the private Postgres. It returns
// what went wrong, also before it was called.
func (l *Local) Stop() error {
	l.stop()
	<-l.ended
	err := l.err
	if l.made != nil && l.postgres == nil { // a temporary Postgres is gone with its keys
		err = errors.Join(err, l.program.revokeKey(l.made))
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
