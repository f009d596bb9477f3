package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/admission"
	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/checkouts"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/live"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/projections"
	"github.com/holdfast/holdfast/projections/ready"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/tenants"
	"github.com/holdfast/holdfast/verbs"
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
	watcher  *requests.Watcher
	steps    *checkouts.Steps
	intake   *admission.Intake // nil: NoIntake
	groups   *verbs.Groups     // nil: NoIntake
	// loops run while the client is started. intakeLoops end after them, because
	// callers still wait for them.
	loops, intakeLoops []func(context.Context) error
	lanes              []*queues.Lane

	mu      sync.Mutex
	started atomic.Bool // and not stopped
	stop    func(ctx context.Context) error
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
	c := &Client{db: pool, config: complete, watcher: requests.NewWatcher(pool, complete.Log)}
	if c.inserter, err = queues.NewWakeInserter(pool); err != nil {
		return nil, err
	}
	if c.steps, err = checkouts.NewSteps(pool, c.config.Checkouts); err != nil {
		return nil, err
	}
	for _, add := range []func() error{c.addIntake, c.addLanes, c.addDetector, c.addMaintenance, c.addProjections} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	c.loops = append(c.loops, c.watcher.Run)
	return c, nil
}

func (c *Client) addIntake() error {
	if c.config.NoIntake {
		return nil
	}
	signals := hot.NewSignals(c.db, c.config.Log)
	direct, err := queues.NewDirect(c.db, c.config.Log, queues.DrainConfig{AgeMax: c.config.QueueAgeMax, Terms: c.config.Terms})
	if err != nil {
		return err
	}
	intake := c.config.Intake
	intake.Load, intake.Decider, intake.Observe = queues.NewLoad(c.db, intake.DepthMax).Read, direct, signals.Observe
	if c.intake, err = admission.NewIntake(c.db, c.inserter, intake); err != nil {
		return err
	}
	if c.groups, err = verbs.New(c.db, c.config.Groups); err != nil {
		return err
	}
	c.intakeLoops = append(c.intakeLoops, c.intake.Run, c.groups.Run, direct.Run, signals.Run)
	return nil
}

func (c *Client) addLanes() error {
	if c.config.NoLanes {
		return nil
	}
	hotLane, err := hot.NewLane(c.db, c.config.Log, c.laneConfig(c.config.Hot))
	if err != nil {
		return err
	}
	normalLane, err := normal.NewLane(c.db, c.config.Log, c.laneConfig(c.config.Normal))
	if err != nil {
		return err
	}
	c.lanes = []*queues.Lane{hotLane, normalLane}
	c.inserter.Attach(c.lanes...)
	for _, lane := range c.lanes {
		c.loops = append(c.loops, lane.Run)
	}
	c.loops = append(c.loops, func(ctx context.Context) error { return queues.Listen(ctx, c.db, c.config.Log, c.lanes...) })
	if c.config.River != nil {
		return queues.Configure(c.config.River, c.lanes...)
	}
	return nil
}

// laneConfig lets the lane report what it has finished to the callers that wait in
// this process, besides the caller's own function.
func (c *Client) laneConfig(config queues.LaneConfig) queues.LaneConfig {
	own := config.Finished
	config.Finished = func(finished []requests.Request) {
		c.watcher.Finished(finished)
		if own != nil {
			own(finished)
		}
	}
	return config
}

func (c *Client) addDetector() error {
	if c.config.NoDetector {
		return nil
	}
	detector, err := hot.NewDetector(c.db, c.inserter, c.config.Log, c.config.Detector)
	if err == nil {
		c.loops = append(c.loops, detector.Run)
	}
	return err
}

func (c *Client) addMaintenance() error {
	if c.config.NoMaintenance {
		return nil
	}
	sweep, err := sweeper.New(c.db, c.config.Log, c.config.Maintenance)
	if err != nil {
		return err
	}
	recovery, err := checkouts.NewRecovery(c.db, c.config.Checkouts)
	if err != nil {
		return err
	}
	c.loops = append(c.loops, sweep.Run, recovery.Run, func(ctx context.Context) error {
		for ctx.Err() == nil {
			more, err := c.purge(ctx, sweep)
			if err != nil && ctx.Err() == nil {
				c.config.Log.WarnContext(ctx, "a purge failed; the next one tries again", "error", err)
			}
			if err != nil || !more {
				_ = sleep.For(ctx, c.config.PurgeEvery) // or ctx ends
			}
		}
		return nil
	})
	return nil
}

const (
	// wakeRetention is the age at which a wake that no client worked is deleted.
	wakeRetention = time.Hour
	// ticketsMax is how many expired tickets one purge deletes.
	ticketsMax = 10_000
)

// purge deletes what is older than its retention.
func (c *Client) purge(ctx context.Context, sweep *sweeper.Sweeper) (more bool, err error) {
	streams, err := lanes.Streams(ctx, c.db)
	if err != nil {
		return false, err
	}
	report, err := sweep.PurgeOnce(ctx, streams)
	if err != nil {
		return false, err
	}
	if _, _, err := queues.PurgeWakes(ctx, c.db, wakeRetention); err != nil {
		return false, err
	}
	_, err = live.PurgeTickets(ctx, c.db, ticketsMax)
	return report.Unfinished(), err
}

// projectionsRetry is the pause after the feed has ended with an error.
const projectionsRetry = 2 * time.Second

func (c *Client) addProjections() error {
	if c.config.NoProjections {
		return nil
	}
	config := projections.Config{Log: c.config.Log}
	set, err := ready.New(c.db, config)
	if err != nil {
		return err
	}
	feed, err := projections.NewFeed(c.db, projections.FeedConfig{Config: config})
	if err != nil {
		return err
	}
	if err := set.Register(feed); err != nil {
		return err
	}
	c.loops = append(c.loops, func(ctx context.Context) error {
		for ctx.Err() == nil {
			_, err := set.SeedMissing(ctx)
			if err == nil {
				err = feed.Run(ctx)
			}
			if err != nil && ctx.Err() == nil {
				c.config.Log.WarnContext(ctx, "the feed of the projections ended, and begins again", "error", err)
			}
			_ = sleep.For(ctx, projectionsRetry) // or ctx ends
		}
		return nil
	})
	return nil
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
	admitting, endAdmitting := context.WithCancel(context.WithoutCancel(ctx))
	stopRiver := func(context.Context) error { return nil }
	if len(c.lanes) > 0 && c.config.River == nil {
		client, err := queues.NewClient(c.db, c.config.Log, c.lanes, queues.WorkerConfig{SoftStop: c.config.StopTimeout})
		if err == nil {
			err = client.Start(running)
		}
		if err != nil {
			end()
			endAdmitting()
			return fmt.Errorf("holdfast: start the River client: %w", err)
		}
		stopRiver = client.Stop
	}
	var working, accepting errgroup.Group
	for _, loop := range c.loops {
		working.Go(func() error { return c.run(running, loop) })
	}
	for _, loop := range c.intakeLoops {
		accepting.Go(func() error { return c.run(admitting, loop) })
	}
	c.started.Store(true)
	c.stop = func(ctx context.Context) error {
		c.started.Store(false)
		endAdmitting()
		accepted := accepting.Wait()
		stopped := stopRiver(ctx)
		end()
		return errors.Join(accepted, stopped, working.Wait())
	}
	return nil
}

// run runs a loop, which ends before ctx only if it cannot go on at all.
func (c *Client) run(ctx context.Context, loop func(context.Context) error) error {
	err := loop(ctx)
	if err != nil && ctx.Err() == nil {
		c.config.Log.ErrorContext(ctx, "a part of the client ended", "error", err)
	}
	return err
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
