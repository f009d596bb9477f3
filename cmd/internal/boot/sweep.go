package boot

import (
	"context"
	"time"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/verify"
)

// maintenanceConns is enough for passes that do one thing after another.
const maintenanceConns = 2

// Sweep runs one sweep, bounded by ONESHOT_TIME_MAX. Several processes may run
// it at once: they share the due holds.
func (p *Program) Sweep(ctx context.Context) (report sweeper.Report, err error) {
	stopped, err := p.maintain(ctx, "sweep", func(ctx context.Context, m *maintenance) error {
		report, err = m.sweeper.RunOnce(ctx)
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
// ONESHOT_TIME_MAX.
func (p *Program) Purge(ctx context.Context) (report PurgeReport, err error) {
	stopped, err := p.maintain(ctx, "purge", func(ctx context.Context, m *maintenance) error {
		report, err = m.purge(ctx)
		return err
	})
	report.More = report.More || stopped
	return report, err
}

// maintain runs a pass once the database answers. stopped means that the pass
// ended at ONESHOT_TIME_MAX, or with ctx, and work may be left. That is not an
// error: the next pass continues.
func (p *Program) maintain(ctx context.Context, job string, pass func(context.Context, *maintenance) error) (stopped bool, err error) {
	db, err := p.openReady(ctx, pool{name: job, conns: maintenanceConns, parameters: shortStatements})
	if err != nil {
		return ctx.Err() != nil, ignoreStop(ctx, err)
	}
	defer db.Close()
	m, err := p.maintenance(db)
	if err != nil {
		return false, err
	}
	bounded, cancel := context.WithTimeout(ctx, p.Config.Lanes.OneShotMax)
	defer cancel()
	err = pass(bounded, m)
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
