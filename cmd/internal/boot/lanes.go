package boot

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/queues/hot"
)

func (p *Program) serves(lane lanes.Lane) bool { return slices.Contains(p.Config.Lanes.Served, lane) }

// hotLane and normalLane configure the lanes, nil for one that this process does
// not serve. The slots of the hot lane are divided between the tasks. All tasks
// serve the normal lane, because its drains share the work anyway.
func (p *Program) hotLane() *queues.LaneConfig {
	return p.lane(lanes.Hot, p.Config.Lanes.HotBatch, p.Config.Lanes.HotConcurrency)
}

func (p *Program) normalLane() *queues.LaneConfig {
	return p.lane(lanes.Normal, p.Config.Lanes.NormalBatch, p.Config.Lanes.NormalConcurrency)
}

func (p *Program) lane(name lanes.Lane, batch, concurrency int) *queues.LaneConfig {
	if !p.serves(name) {
		return nil
	}
	working, _ := p.stopTimes()
	drains := p.drainConfig()
	drains.Batch = batch
	return &queues.LaneConfig{
		DrainConfig: drains, Part: p.Config.Task.Index, Parts: p.Config.Task.Count, Concurrency: concurrency,
		DepthMax: p.Config.Intake.DepthMax, StopTimeout: working,
	}
}

func (p *Program) drainConfig() queues.DrainConfig {
	return queues.DrainConfig{AgeMax: p.Config.Lanes.QueueAgeMax, Terms: p.terms()}
}

// openDrains makes the pool of the lanes: a connection for each drain that runs
// or waits for a lock at one time, and one for the lane's ticks, isolated retries
// and the query for locked stocks. Even if all
// hot drains wait for hot stocks, the normal lane still has its own.
func (p *Program) openDrains(ctx context.Context) (*pgxpool.Pool, error) {
	c := &p.Config.Lanes
	conns := 0
	if p.serves(lanes.Hot) {
		conns += c.HotConcurrency + queues.LockWaits(c.HotConcurrency) + 1
	}
	if p.serves(lanes.Normal) {
		conns += c.NormalConcurrency + 1 + 1 // one for diverted tenants
	}
	if p.Config.Database.Connections > 0 {
		conns = p.Config.Database.Connections
	}
	return p.openReady(ctx, pool{name: "drains", conns: conns, parameters: shortStatements, hotPath: true})
}

// detectorConfig configures the detector. It is nil if HOT_DETECT is off or the
// process does not serve the hot lane.
func (p *Program) detectorConfig() *hot.DetectorConfig {
	c := p.Config.Detect
	if !c.On || !p.serves(lanes.Hot) {
		return nil
	}
	return &hot.DetectorConfig{
		PromoteRate: float64(c.PromoteRate), VariantsMax: c.VariantsMax, FloodRate: float64(c.FloodRate),
	}
}
