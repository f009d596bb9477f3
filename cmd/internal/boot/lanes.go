package boot

import (
	"context"
	"log/slog"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// servedLane is a lane as a worker serves it.
type servedLane struct {
	name lanes.Lane
	// batch and concurrency are the settings of the lane, and drains is how
	// many of its drains run at one time.
	batch, concurrency, drains int

	make func(*pgxpool.Pool, *slog.Logger, queues.LaneConfig) (*queues.Lane, error)
}

// served returns the lanes that this process serves.
func (p *Program) served() []servedLane {
	c := &p.Config.Lanes
	all := []servedLane{
		{lanes.Hot, c.HotBatch, c.HotConcurrency, c.HotConcurrency + queues.LockWaits(c.HotConcurrency), hot.NewLane},
		{lanes.Normal, c.NormalBatch, c.NormalConcurrency, c.NormalConcurrency + 1, normal.NewLane}, // one for diverted tenants
	}
	return slices.DeleteFunc(all, func(l servedLane) bool { return !p.serves(l.name) })
}

func (p *Program) serves(lane lanes.Lane) bool { return slices.Contains(p.Config.Lanes.Served, lane) }

// openDrains makes the pool of the lanes: a connection for each drain that runs
// or waits for a lock at one time, and one for the lane's ticks, isolated retries
// and the query for locked stocks. Even if all
// hot drains wait for hot stocks, the normal lane still has its own.
func (p *Program) openDrains(ctx context.Context) (*pgxpool.Pool, error) {
	conns := 0
	for _, l := range p.served() {
		conns += l.drains + 1
	}
	if p.Config.Database.Connections > 0 {
		conns = p.Config.Database.Connections
	}
	return p.openReady(ctx, pool{name: "drains", conns: conns, parameters: shortStatements, hotPath: true})
}

// lanes makes the lanes that this process serves, in its part of the task. The
// slots of the hot lane are divided between the tasks. All tasks serve the
// normal lane, because its drains share the work anyway.
func (p *Program) lanes(db *pgxpool.Pool, finished func([]requests.Request)) (served []*queues.Lane, err error) {
	working, _ := p.stopTimes()
	for _, l := range p.served() {
		lane, err := l.make(db, p.Log, queues.LaneConfig{
			DrainConfig: queues.DrainConfig{Batch: l.batch, AgeMax: p.Config.Lanes.QueueAgeMax, Terms: p.terms(), Finished: finished},
			Part:        p.Config.Task.Index, Parts: p.Config.Task.Count, Concurrency: l.concurrency,
			DepthMax: p.Config.Intake.DepthMax, StopTimeout: working,
		})
		if err != nil {
			return nil, err
		}
		served = append(served, lane)
	}
	return served, nil
}

// signalConns is how many connections an API process uses to record arrivals.
const signalConns = 1

// detector makes the detector, which moves variants between the lanes. It
// returns nil if HOT_DETECT is off or the process does not serve the hot lane.
// Of all processes that run a detector, one decides at a time.
func (p *Program) detector(db *pgxpool.Pool, inserter *queues.WakeInserter) (*hot.Detector, error) {
	c := p.Config.Detect
	if !c.On || !p.serves(lanes.Hot) {
		return nil, nil
	}
	return hot.NewDetector(db, inserter, p.Log, hot.DetectorConfig{
		PromoteRate: float64(c.PromoteRate), VariantsMax: c.VariantsMax, FloodRate: float64(c.FloodRate),
	})
}
