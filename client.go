package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/migrations"
)

// Migrate brings the schema of the pool's database up to date: River's tables
// in the schema river, then Holdfast's. Several processes may call it at once.
func Migrate(ctx context.Context, pool *pgxpool.Pool) error {
	return migrations.Up(ctx, pool) //nolint:wrapcheck // the caller's own error
}

// Client accepts requests, decides them, and keeps its house. It is safe for
// concurrent use. A process needs one.
type Client struct {
	db     *pgxpool.Pool
	config Config

	inserter *queues.WakeInserter
	watcher  *requestrows.Watcher
	steps    *checkouts.Steps
	acceptor *wiring.Acceptor // nil: NoIntake
	worker   *wiring.Worker

	mu      sync.Mutex
	started atomic.Bool // and not stopped
	stop    func(context.Context) error
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
	c := &Client{db: pool, config: complete, watcher: requestrows.NewWatcher(pool, complete.Log)}
	if c.inserter, err = queues.NewWakeInserter(pool); err != nil {
		return nil, err
	}
	if c.steps, err = checkouts.NewSteps(pool, c.config.Checkouts); err != nil {
		return nil, err
	}
	if !complete.NoIntake {
		if c.acceptor, err = wiring.NewAcceptor(pool, c.inserter, complete.acceptor()); err != nil {
			return nil, err
		}
	}
	if c.worker, err = wiring.NewWorker(pool, pool, c.inserter, complete.worker(c.watcher.Finished)); err != nil {
		return nil, err
	}
	c.inserter.Attach(c.worker.Lanes...)
	return c, nil
}

// Start starts the client's roles and returns. ctx bounds the start only; the
// roles run until [Client.Stop].
//
// Errors: the client is started already, or River's client does not start.
func (c *Client) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		return errors.New("holdfast: the client was started before")
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	if err := c.worker.Start(running); err != nil {
		end()
		return fmt.Errorf("holdfast: %w", err)
	}
	// They are stopped in this order: the acceptor's callers wait for the worker,
	// and learn of its work by the watcher.
	accepting, working, watching := c.run(running, c.accept), c.run(running, c.worker.Run), c.run(running, c.watcher.Run)
	c.started.Store(true)
	c.stop = func(ctx context.Context) error {
		defer end()
		defer context.AfterFunc(ctx, end)()
		c.started.Store(false)
		return errors.Join(accepting(), working(), watching())
	}
	return nil
}

// accept runs the acceptor, if there is one.
func (c *Client) accept(ctx context.Context) error {
	if c.acceptor == nil {
		return nil
	}
	return c.acceptor.Run(ctx)
}

// run runs a part, which ends before it is stopped only if it cannot go on at
// all. stop ends it and returns its error.
func (c *Client) run(ctx context.Context, part func(context.Context) error) (stop func() error) {
	ctx, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		err := part(ctx)
		if err != nil && ctx.Err() == nil {
			c.config.Log.ErrorContext(ctx, "a part of the client ended", "error", err)
		}
		ended <- err
	}()
	return func() error {
		end()
		return <-ended
	}
}

// Stop commits the calls that wait in this process, lets the transactions under
// way end, each for Config.StopTimeout at most, and returns once nothing of the
// client runs. A later call has its own transaction. A client
// that was not started, or was stopped, is left as it is. A stopped client
// cannot be started again.
func (c *Client) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop == nil || !c.started.Load() {
		return nil
	}
	return c.stop(ctx)
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

// Subscribe opens a durable, named subscription to the record of all tenants. A
// new one begins where config says, and another one where it last was. Its Run
// delivers every record at
// least once, and the records of one target in order, to one process at a time.
func (c *Client) Subscribe(ctx context.Context, name string, config audit.SubscriptionConfig) (*audit.Subscription, error) {
	return audit.Subscribe(ctx, c.db, name, config)
}
