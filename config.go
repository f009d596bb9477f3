package holdfast

import (
	"log/slog"
	"time"

	"github.com/riverqueue/river"

	"github.com/holdfast/holdfast/admission"
	"github.com/holdfast/holdfast/checkouts"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/verbs"
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
	Groups      verbs.Config
	Hot, Normal queues.LaneConfig
	Detector    hot.DetectorConfig
	Maintenance sweeper.Config
	Checkouts   checkouts.Config
	// PurgeEvery is how often finished requests and old records are deleted;
	// default 10 minutes.
	PurgeEvery time.Duration
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
	if c.PurgeEvery == 0 {
		c.PurgeEvery = 10 * time.Minute
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 8 * time.Second
	}
	c.Intake.AgeMax, c.Intake.StopTimeout = c.QueueAgeMax, c.StopTimeout
	c.Groups.Log, c.Groups.StopTimeout = c.Log, c.StopTimeout
	for _, lane := range []*queues.LaneConfig{&c.Hot, &c.Normal} {
		lane.AgeMax, lane.Terms, lane.StopTimeout, lane.DepthMax = c.QueueAgeMax, c.Terms, c.StopTimeout, c.Intake.DepthMax
	}
	c.Checkouts.Log = c.Log
	return c, nil
}
