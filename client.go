package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
)

// Migrate brings the schema of the pool's database up to date: River's tables
// in the schema river, then Holdfast's. Several processes may call it at once.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return migrations.Up(ctx, pool, nil) //nolint:wrapcheck // the caller's own error
}

// Client accepts requests, decides them, and runs the passes of maintenance. It
// is safe for concurrent use. A process needs one.
type Client struct {
	db     *pgxpool.Pool
	config Config

	inserter *queues.WakeInserter
	watcher  *requestrows.Watcher
	steps    *checkouts.Steps
	tokens   *metered.TokenStore
	acceptor *wiring.Acceptor // nil: NoIntake
	worker   *wiring.Worker
	// maintenance is what RunOnce runs.
	maintenance *wiring.Maintenance

	mu      sync.Mutex
	started atomic.Bool // and not stopped
	parts   []*part     // that run, in the order in which they are stopped
	end     context.CancelFunc
	done    chan struct{}
	failed  func() // closes done

	found sync.Map // of foundTenant, by name

	waitsEnd        chan struct{} // closed by EndWaits
	endWaits        func()
	checkoutWaiters atomic.Int64 // calls of WaitCheckout
}

// New makes a client on a database that [Migrate] has migrated. It starts
// nothing. The pool needs about 20 connections for all roles, and is the
// caller's: Stop does not close it. A nil config is the zero Config.
func New(pool *pgxpool.Pool, config *Config) (*Client, error) {
	if config == nil {
		config = &Config{}
	}
	complete, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{db: pool, config: complete, watcher: requestrows.NewWatcher(pool, complete.Log), done: make(chan struct{})}
	c.failed = sync.OnceFunc(func() { close(c.done) })
	c.waitsEnd = make(chan struct{})
	c.endWaits = sync.OnceFunc(func() { close(c.waitsEnd) })
	intake, lanes := cmp.Or(complete.IntakePool, pool), cmp.Or(complete.LanePool, pool)
	if c.inserter, err = queues.NewWakeInserter(intake); err != nil {
		return nil, err
	}
	if c.steps, err = checkouts.NewSteps(pool, complete.Checkouts); err != nil {
		return nil, err
	}
	commands, err := metered.New(pool, metered.Config{})
	if err != nil {
		return nil, err
	}
	c.tokens = commands.Tokens
	if !complete.NoIntake {
		if c.acceptor, err = wiring.NewAcceptor(intake, c.inserter, complete.acceptor()); err != nil {
			return nil, err
		}
	}
	callers := c
	if complete.Beside != nil {
		callers = complete.Beside
	}
	if c.worker, err = wiring.NewWorker(pool, lanes, c.inserter, complete.worker(callers.watcher.Finished)); err != nil {
		return nil, err
	}
	callers.inserter.Attach(c.worker.Lanes...)
	c.maintenance, err = wiring.NewMaintenance(pool, *complete.maintenance())
	return c, err
}

// Start starts the client's roles and returns. ctx bounds the start only; the
// roles run until [Client.Stop]. After an error Start may be called again. It
// first proves with two connections of New's pool that the database is one
// Postgres server, and that no pooler in transaction mode is in the way.
//
// Errors: the client is started already, the database is unfit, or River's
// client does not start.
func (c *Client) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		return errors.New("holdfast: the client was started before")
	}
	if err := c.probe(ctx); err != nil {
		return err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	late := context.AfterFunc(ctx, end)
	err := c.worker.Start(running)
	if !late() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		end()
		return fmt.Errorf("holdfast: %w", err)
	}
	// They are stopped in this order: the acceptor's callers wait for the worker,
	// and learn of its work by the watcher.
	if c.acceptor != nil {
		c.parts = append(c.parts, c.run(running, c.acceptor.Run))
	}
	c.parts = append(c.parts, c.run(running, c.worker.Run))
	if c.acceptor != nil {
		c.parts = append(c.parts, c.run(running, c.watch))
	}
	c.end = end
	c.started.Store(true)
	return nil
}

// probe returns an error if the database is unfit. Any other error is left to the
// roles, which wait for a database that does not respond.
func (c *Client) probe(ctx context.Context) error {
	err := requestrows.Sequences[0].Probe(ctx, c.db)
	if _, unfit := errors.AsType[*horizon.UnfitError](err); unfit {
		return fmt.Errorf("holdfast: %w", err)
	}
	return nil
}

// watch lets callers wait for requests until ctx ends or EndWaits is called.
func (c *Client) watch(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-c.waitsEnd:
			stop()
		case <-ctx.Done():
		}
	}()
	return c.watcher.Run(ctx)
}

// part is a part of the client that runs.
type part struct {
	stop  context.CancelFunc
	ended chan error
}

// run runs a part, which ends before it is stopped only if it cannot go on at
// all.
func (c *Client) run(ctx context.Context, work func(context.Context) error) *part {
	ctx, stop := context.WithCancel(ctx)
	p := &part{stop, make(chan error, 1)}
	go func() {
		err := work(ctx)
		if err != nil && ctx.Err() == nil {
			c.config.Log.ErrorContext(ctx, "a part of the client ended", "error", err)
			c.failed()
		}
		p.ended <- err
	}()
	return p
}

// Done is closed when a part of the client has ended with an error, which Stop
// returns, or when the client that was started is stopped.
func (c *Client) Done() <-chan struct{} { return c.done }

// StalledLane returns the name of a lane that this client serves and no tick of
// which has ended for a minute, or "". Such a process is to be restarted.
func (c *Client) StalledLane() string { return string(queues.Stalled(c.worker.Lanes, time.Now())) }

// EndWaits ends all waits of this process for requests and checkouts, now and
// later: each returns what it waits for as it is. A server calls it when it
// begins to stop.
func (c *Client) EndWaits() { c.endWaits() }

// Stop commits the calls that wait in this process, lets the transactions under
// way end, each for Config.StopTimeout at most, and returns once nothing of the
// client runs. When ctx ends, it cancels what it can and returns without waiting
// for the rest. A later call has its own transaction. A client that was not
// started, or was stopped, is left as it is. A stopped client cannot be started
// again.
func (c *Client) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started.Swap(false) {
		return nil
	}
	defer c.end()
	defer context.AfterFunc(ctx, c.end)()
	var errs []error
	for _, p := range c.parts {
		p.stop()
		select {
		case err := <-p.ended:
			errs = append(errs, err)
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("holdfast: a part of the client has not stopped: %w", ctx.Err()))
		}
	}
	c.failed()
	return errors.Join(errs...)
}

// RunOnce runs one bounded pass of maintenance by its name, for a program that
// runs passes instead of a client: "sweep" expires due holds, "drain" decides
// what is queued in the lanes that the client serves, "recover" takes over
// requests whose isolated retry was not finished and the checkouts that are due,
// and "purge" deletes what is older than its retention. It ends when there is
// no more to do, or when the time is over, which is no error; then the report
// has more. Several processes may run the same pass at once. The report is for
// encoding/json.
func (c *Client) RunOnce(ctx context.Context, pass string, within time.Duration) (report any, err error) {
	if err := c.probe(ctx); err != nil {
		return wiring.Unfinished(pass), err
	}
	return c.maintenance.RunOnce(ctx, c.worker.Lanes, pass, within)
}

// Tenant is what one tenant has and does: stocks, carts, checkouts. It is safe
// for concurrent use.
type Tenant struct {
	client *Client
	tenants.Tenant
}

// Tenant returns the tenant of that name, which is made if there is none. Every
// key of the schema begins with its id.
//
// Errors: *InvalidError for a bad name.
func (c *Client) Tenant(ctx context.Context, name string) (*Tenant, error) {
	tenant, err := tenants.Ensure(ctx, c.db, name)
	if err != nil {
		return nil, err
	}
	return &Tenant{c, tenant}, nil
}

// TenantByID returns the tenant with the id, which it does not look up.
func (c *Client) TenantByID(id uuid.UUID) *Tenant { return &Tenant{c, tenants.Tenant{TenantID: id}} }

// Subscribe opens a durable, named subscription to the record of all tenants. A
// new one begins where config says, and another one where it last was. Its Run
// delivers every record at
// least once, and the records of one target in order, to one process at a time.
func (c *Client) Subscribe(ctx context.Context, name string, config audit.SubscriptionConfig) (*audit.Subscription, error) {
	return audit.Subscribe(ctx, c.db, name, config)
}
