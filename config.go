package holdfast

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/sweeper"
)

// Config configures a [Client]. Its zero value is all of Holdfast in one
// process, and the zero value of a field is its default.
type Config struct {
	// Log receives what the client's loops log; default slog.Default().
	Log *slog.Logger

	// River is the configuration of the program's own River client. New adds the
	// lanes' queues and their worker to it; the program makes the client, starts
	// it before Start and stops it after Stop. If it is nil, the client has a
	// River client of its own, which logs to RiverLog (default Log) and calls
	// RiverMiddleware.
	River           *river.Config
	RiverLog        *slog.Logger
	RiverMiddleware []rivertype.Middleware

	// IntakePool is for the transactions that commit calls in groups, and
	// LanePool for those that decide requests; default the pool of New. With
	// separate pools, many slow reads delay neither.
	IntakePool, LanePool *pgxpool.Pool

	// The roles of the process, each on unless it is switched off.

	// NoIntake: requests are not accepted in groups, and the synchronous verbs
	// are not committed in groups. Each has a transaction of its own, as it has
	// before Start.
	NoIntake bool
	// NoLanes: requests are decided by other processes. Hot.Off and Normal.Off
	// leave one lane to them.
	NoLanes bool
	// NoMaintenance: other processes expire due holds, delete what is older than
	// its retention, and recover checkouts.
	NoMaintenance bool
	// NoDirect: requests are not decided in the transaction that accepts them,
	// even if their callers wait.
	NoDirect bool
	// NoDetector: no variant is moved to the hot lane and back by its load. Of
	// all processes with a detector one decides at a time. A process that does
	// not serve the hot lane only records the arrivals.
	NoDetector bool
	// NoProjections: the read models are not folded from the record here.
	NoProjections bool

	// Terms are the deadlines of holds.
	Terms inventory.Terms
	// QueueAgeMax is how long a request may wait for its decision: default 10
	// minutes. An older one fails with reason expired_in_queue.
	QueueAgeMax time.Duration
	// Rates limit what is requested, where metered commands are on
	// (Intake.Metered).
	Rates Rates

	// The bounds of each part. What the fields above say wins over them, and New
	// sets Load, Decider and Observe of Intake.

	Intake      admission.IntakeConfig
	Groups      carts.Config
	Hot, Normal queues.LaneConfig
	Detector    hot.DetectorConfig
	Maintenance sweeper.Config
	Checkouts   checkouts.Config
	// Sweep is when due holds are expired; default every 15 s. Purge is when
	// finished requests and old records are deleted; default every 10 minutes.
	// If MaintenanceByRiver is set, both are periodic jobs of River, which its
	// leader schedules for all processes; otherwise this process runs them.
	Sweep, Purge       river.PeriodicSchedule
	MaintenanceByRiver bool
	// Part of Parts is what this process has of the hot lane's slots and of a
	// purge; the zero values are all of it.
	Part, Parts int
	// AttemptTimeout bounds each transaction of a call that is not committed in
	// a group; default 5 s.
	AttemptTimeout time.Duration
	// StopTimeout is how long Stop lets the work in flight continue; default 8
	// s. CloseTimeout is how long what follows it may take; default 2 s.
	StopTimeout, CloseTimeout time.Duration

	// Beside is another client of the same process. Its callers learn directly
	// of what this client decides, and this client's lanes of what its callers
	// request, without a notification by the database.
	Beside *Client
}

// Rates are the rate limits of the requests of each tenant and of each customer
// (CallOpts.Customer). A Limit of 0 means no limit. Scope and Amount are not
// used.
type Rates struct{ Tenant, Customer ratelimit.Rate }

func (r Rates) validate() error {
	for _, r := range []ratelimit.Rate{r.Tenant, r.Customer} {
		if r.Limit != 0 && (r.Limit < 1 || r.Limit > ratelimit.RateLimitMax || r.Window < time.Second || r.Window > ratelimit.RateWindowMax) {
			return fmt.Errorf("holdfast: want a limit (%d) of 1 to %d and a window (%s) of 1s to %s", r.Limit, ratelimit.RateLimitMax, r.Window, ratelimit.RateWindowMax)
		}
	}
	return nil
}

// of returns the rates that count a request of the customer.
func (r Rates) of(customer string) (rates []ratelimit.Rate) {
	if tenant := r.Tenant; tenant.Limit != 0 {
		tenant.Scope, tenant.Amount = "tenant", 1
		rates = append(rates, tenant)
	}
	if own := r.Customer; own.Limit != 0 {
		own.Scope, own.Amount = "customer:"+customer, 1
		rates = append(rates, own)
	}
	return rates
}

func (c Config) withDefaults() (_ Config, err error) {
	if c.Terms, err = c.Terms.WithDefaults(); err != nil {
		return c, err
	}
	if err := c.Rates.validate(); err != nil {
		return c, err
	}
	if c.MaintenanceByRiver && !c.NoMaintenance && (c.River != nil || c.NoLanes || c.Hot.Off && c.Normal.Off) {
		return c, errors.New("holdfast: MaintenanceByRiver needs a lane and a River client of the client's own: the passes would not run")
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Sweep == nil {
		c.Sweep = river.PeriodicInterval(15 * time.Second)
	}
	if c.Purge == nil {
		c.Purge = river.PeriodicInterval(10 * time.Minute)
	}
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, 5*time.Second)
	c.StopTimeout, c.CloseTimeout = cmp.Or(c.StopTimeout, 8*time.Second), cmp.Or(c.CloseTimeout, 2*time.Second)
	c.Intake.AgeMax, c.Intake.StopTimeout = c.QueueAgeMax, c.StopTimeout
	c.Groups.Log, c.Groups.StopTimeout = c.Log, c.StopTimeout
	for _, lane := range []*queues.LaneConfig{&c.Hot, &c.Normal} {
		lane.AgeMax, lane.Terms, lane.StopTimeout = c.QueueAgeMax, c.Terms, c.StopTimeout
		lane.Part, lane.Parts = c.Part, c.Parts
		lane.Off = lane.Off || c.NoLanes
	}
	c.Checkouts.Log = c.Log
	return c, nil
}

func (c *Config) acceptor() wiring.AcceptorConfig {
	a := wiring.AcceptorConfig{Log: c.Log, Intake: c.Intake, Groups: c.Groups, Signals: !c.NoDetector}
	if !c.NoDirect {
		a.Direct = &queues.DrainConfig{AgeMax: c.QueueAgeMax, Terms: c.Terms}
	}
	return a
}

// worker configures the roles of a client whose waiting callers receive what the
// lanes have finished.
func (c *Config) worker(finished func([]requests.Request)) wiring.WorkerConfig {
	w := wiring.WorkerConfig{
		Log: c.Log, River: c.River, RiverLog: c.RiverLog, Middleware: c.RiverMiddleware, Hot: reporting(c.Hot, finished), Normal: reporting(c.Normal, finished),
		Projections: !c.NoProjections, Ticker: !c.MaintenanceByRiver, StopTimeout: c.StopTimeout, CloseTimeout: c.CloseTimeout,
	}
	if !c.NoDetector && !c.Hot.Off {
		w.Detector = &c.Detector
	}
	if !c.NoMaintenance {
		w.Maintenance = c.maintenance()
	}
	return w
}

func (c *Config) maintenance() *wiring.MaintenanceConfig {
	return &wiring.MaintenanceConfig{
		Log: c.Log, Bounds: c.Maintenance, Checkouts: c.Checkouts, Sweep: c.Sweep, Purge: c.Purge, Part: c.Part, Parts: c.Parts,
	}
}

// reporting lets a lane report to the client what it has finished, besides the
// caller's own function. It returns nil for a lane that is off.
func reporting(config queues.LaneConfig, finished func([]requests.Request)) *queues.LaneConfig {
	if config.Off {
		return nil
	}
	own := config.Finished
	config.Finished = func(requests []requests.Request) {
		finished(requests)
		if own != nil {
			own(requests)
		}
	}
	return &config
}
