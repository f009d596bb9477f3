package boot

import (
	"context"
	"slices"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/verify"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/sweeper"
)

// upkeepConns is enough for passes that do one thing after the other.
const upkeepConns = 2

// Sweep is one sweep, bounded by ONESHOT_TIME_MAX. It may run at once in several processes: they share what is due.
func (p *Program) Sweep(ctx context.Context) (report sweeper.Report, err error) {
	err = p.withSweeper(ctx, "sweep", func(ctx context.Context, s *sweeper.Sweeper, _ []requests.Wake) error {
		report, err = s.RunOnce(ctx)
		return err
	})
	return report, err
}

// Purge is one purge of this task's part of the streams, bounded by ONESHOT_TIME_MAX.
func (p *Program) Purge(ctx context.Context) (report sweeper.PurgeReport, err error) {
	err = p.withSweeper(ctx, "purge", func(ctx context.Context, s *sweeper.Sweeper, streams []requests.Wake) error {
		report, err = s.PurgeOnce(ctx, p.share(streams))
		return err
	})
	return report, err
}

// share deals the streams out to the tasks in turn.
func (p *Program) share(streams []requests.Wake) (own []requests.Wake) {
	own = slices.Clone(streams)
	place := -1
	return slices.DeleteFunc(own, func(requests.Wake) bool {
		place++
		return place%p.Config.Task.Count != p.Config.Task.Index
	})
}

func (p *Program) withSweeper(ctx context.Context, job string, pass func(context.Context, *sweeper.Sweeper, []requests.Wake) error) error {
	ctx, cancel := context.WithTimeout(ctx, p.Config.Lanes.OneShotMax)
	defer cancel()
	db, err := p.openReady(ctx, pool{name: job, conns: upkeepConns, parameters: shortStatements})
	if err != nil {
		return err
	}
	defer db.Close()
	streams, err := queues.Streams(ctx, db)
	if err != nil {
		return err
	}
	s, err := sweeper.New(db, p.Log, p.sweeperConfig())
	if err != nil {
		return err
	}
	if err := pass(ctx, s, streams); err != nil {
		return err
	}
	telemetry.JobSucceeded(ctx, job)
	return nil
}

// Verify checks the invariants.
func (p *Program) Verify(ctx context.Context) (verify.Report, error) {
	db, err := p.OpenTool(ctx)
	if err != nil {
		return verify.Report{}, err
	}
	defer db.Close()
	return verify.Config{Retention: p.Config.Sweep.RequestRetention}.Run(ctx, db)
}
