package boot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/lanes"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/verify"
)

// maintenanceConns is enough for passes that do one thing after another.
const maintenanceConns = 2

// Sweep runs one sweep, bounded by ONESHOT_TIME_MAX. Several processes may run
// it at once: they share the due holds.
func (p *Program) Sweep(ctx context.Context) (report sweeper.Report, err error) {
	stopped, err := p.withSweeper(ctx, "sweep", func(ctx context.Context, _ *pgxpool.Pool, s *sweeper.Sweeper, _ []lanes.Stream) error {
		report, err = s.RunOnce(ctx)
		return err
	})
	report.More = report.More || stopped
	return report, err
}

// PurgeReport is what one purge deleted.
type PurgeReport struct {
	sweeper.PurgeReport

	// Wakes counts deleted River jobs that no worker took.
	Wakes int64 `json:"wakes"`
	// LiveTickets counts deleted tickets that expired unused.
	LiveTickets int64 `json:"live_tickets"`
}

// wakeRetention is the age at which a purge deletes a wake. A tick has done its
// work long before.
const wakeRetention = time.Hour

// Purge runs one purge of this task's part of the streams, bounded by
// ONESHOT_TIME_MAX. Workers complete and delete wakes. If none runs, the wakes
// stay, so the first task also deletes old wakes.
func (p *Program) Purge(ctx context.Context) (report PurgeReport, err error) {
	stopped, err := p.withSweeper(ctx, "purge", func(ctx context.Context, db *pgxpool.Pool, s *sweeper.Sweeper, streams []lanes.Stream) error {
		if report.PurgeReport, err = s.PurgeOnce(ctx, p.share(streams)); err != nil || p.Config.Task.Index > 0 {
			return err
		}
		var more bool
		report.Wakes, more, err = queues.PurgeWakes(ctx, db, wakeRetention)
		report.More = report.More || more
		if err != nil {
			return err
		}
		report.LiveTickets, more, err = purgeTickets(ctx, db)
		report.More = report.More || more
		return err
	})
	report.More = report.More || stopped
	return report, err
}

// share deals the streams out to the tasks in turn.
func (p *Program) share(streams []lanes.Stream) (own []lanes.Stream) {
	for i, stream := range streams {
		if i%p.Config.Task.Count == p.Config.Task.Index {
			own = append(own, stream)
		}
	}
	return own
}

// withSweeper runs a pass once the database answers. stopped means that the
// pass ended at ONESHOT_TIME_MAX, or with ctx, and work may be left. That is
// not an error: the next pass continues.
func (p *Program) withSweeper(
	ctx context.Context, job string, pass func(context.Context, *pgxpool.Pool, *sweeper.Sweeper, []lanes.Stream) error,
) (stopped bool, err error) {
	db, err := p.openReady(ctx, pool{name: job, conns: maintenanceConns, parameters: shortStatements})
	if err != nil {
		return ctx.Err() != nil, ignoreStop(ctx, err)
	}
	defer db.Close()
	s, err := sweeper.New(db, p.Log, p.sweeperConfig())
	if err != nil {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, p.Config.Lanes.OneShotMax)
	defer cancel()
	streams, err := lanes.Streams(bounded, db)
	if err == nil {
		err = pass(bounded, db, s, streams)
	}
	stopped = err != nil && bounded.Err() != nil
	if err = ignoreStop(bounded, err); err == nil {
		telemetry.JobSucceeded(ctx, job)
	}
	return stopped, err
}

// ignoreStop returns nil for the error of a pass whose context has ended.
func ignoreStop(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Verify checks the invariants with the retention and the queue's greatest age
// of the configuration. limits has the other fields. If ctx ends before all of
// them are checked, it returns an error.
func (p *Program) Verify(ctx context.Context, limits verify.Config) (verify.Report, error) {
	db, err := p.openTool(ctx, verifyPool)
	if err != nil {
		return verify.Report{}, err
	}
	defer db.Close()
	limits.Retention, limits.QueueAgeMax = p.Config.Sweep.RequestRetention, p.Config.Lanes.QueueAgeMax
	return limits.Run(ctx, db)
}
