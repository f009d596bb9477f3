package holdfast

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/queues/hot"
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
	// River client of its own.
	River *river.Config

	// The roles of the process, each on unless it is switched off.

	// NoIntake: requests are not accepted in groups, and the synchronous verbs
	// are not committed in groups. Each has a transaction of its own, as it has
	// before Start.
	NoIntake bool
	// NoLanes: requests are decided by other processes.
	NoLanes bool
	// NoMaintenance: other processes expire due holds, delete what is older than
	// its retention, and recover checkouts.
	NoMaintenance bool
	// NoDetector: no variant is moved to the hot lane and back by its load. Of
	// all processes with a detector one decides at a time.
	NoDetector bool
	// NoProjections: the read models are not folded from the record here.
	NoProjections bool

	// Terms are the deadlines of holds.
	Terms inventory.Terms
	// QueueAgeMax is how long a request may wait for its decision: default 10
	// minutes. An older one fails with reason expired_in_queue.
	QueueAgeMax time.Duration

	// The bounds of each part. What the fields above say wins over them, and New
	// sets Load, Decider and Observe of Intake.

	Intake      admission.IntakeConfig
	Groups      carts.Config
	Hot, Normal queues.LaneConfig
	Detector    hot.DetectorConfig
	Maintenance sweeper.Config
	Checkouts   checkouts.Config
	// SweepEvery is how often due holds are expired; default 15 s. PurgeEvery is
	// how often finished requests and old records are deleted; default 10
	// minutes.
	SweepEvery, PurgeEvery time.Duration
	// StopTimeout is how long Stop lets the work in flight continue; default 8 s.
	StopTimeout time.Duration
}

func (c Config) withDefaults() (_ Config, err error) {
	if c.Terms, err = c.Terms.WithDefaults(); err != nil {
		return c, err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.SweepEvery, c.PurgeEvery = cmp.Or(c.SweepEvery, 15*time.Second), cmp.Or(c.PurgeEvery, 10*time.Minute)
	c.StopTimeout = cmp.Or(c.StopTimeout, 8*time.Second)
	if min(c.SweepEvery, c.PurgeEvery) < time.Millisecond {
		return c, fmt.Errorf("holdfast: want sweep_every (%s) and purge_every (%s) ≥ 1ms", c.SweepEvery, c.PurgeEvery)
	}
	c.Intake.AgeMax, c.Intake.StopTimeout = c.QueueAgeMax, c.StopTimeout
	c.Groups.Log, c.Groups.StopTimeout = c.Log, c.StopTimeout
	for _, lane := range []*queues.LaneConfig{&c.Hot, &c.Normal} {
		lane.AgeMax, lane.Terms, lane.StopTimeout, lane.DepthMax = c.QueueAgeMax, c.Terms, c.StopTimeout, c.Intake.DepthMax
	}
	c.Checkouts.Log = c.Log
	return c, nil
}

func (c *Config) acceptor() wiring.AcceptorConfig {
	return wiring.AcceptorConfig{
		Log: c.Log, Intake: c.Intake, Groups: c.Groups, Direct: queues.DrainConfig{AgeMax: c.QueueAgeMax, Terms: c.Terms}, Signals: true,
	}
}

// worker configures the roles of a client whose waiting callers receive what the
// lanes have finished.
func (c *Config) worker(finished func([]requests.Request)) wiring.WorkerConfig {
	w := wiring.WorkerConfig{
		Log: c.Log, Projections: !c.NoProjections, Ticker: true, StopTimeout: c.StopTimeout, CloseTimeout: closeTimeout,
	}
	if !c.NoLanes {
		w.River, w.Hot, w.Normal = c.River, reporting(c.Hot, finished), reporting(c.Normal, finished)
	}
	if !c.NoDetector {
		w.Detector = &c.Detector
	}
	if !c.NoMaintenance {
		w.Maintenance = &wiring.MaintenanceConfig{
			Log: c.Log, Bounds: c.Maintenance, Checkouts: c.Checkouts, Sweep: sweeper.Every(c.SweepEvery), Purge: sweeper.Every(c.PurgeEvery),
		}
	}
	return w
}

// reporting lets a lane report to the client what it has finished, besides the
// caller's own function.
func reporting(config queues.LaneConfig, finished func([]requests.Request)) *queues.LaneConfig {
	own := config.Finished
	config.Finished = func(requests []requests.Request) {
		finished(requests)
		if own != nil {
			own(requests)
		}
	}
	return &config
}

// closeTimeout is how long what follows the work in flight may take.
const closeTimeout = 2 * time.Second
