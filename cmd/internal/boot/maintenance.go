package boot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/checkouts/callback"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/sweeper"
	"github.com/holdfast/holdfast/verify"
)

// callbacks makes what calls payment services, nil without
// CHECKOUT_CALLBACK_SECRET.
func (p *Program) callbacks() (*callback.Validator, error) {
	c := &p.Config.Checkout
	secret, err := c.Secret()
	if err != nil || secret.IsZero() {
		return nil, err
	}
	return callback.New(callback.Config{Secret: secret, Timeout: c.CallbackTimeout, AllowPrivate: c.CallbackPrivate})
}

// checkoutsConfig bounds checkouts. A step may take a second longer than a
// callback, so that the callback's own error is the one that is logged.
func (p *Program) checkoutsConfig() checkouts.Config {
	c := &p.Config.Checkout
	return checkouts.Config{TTL: c.TTL, Log: p.Log, AttemptTimeout: c.CallbackTimeout + time.Second, Concurrency: c.CallbackConcurrency}
}

// maintenanceConfig configures the passes, in this task's part of the work.
func (p *Program) maintenanceConfig() (*wiring.MaintenanceConfig, error) {
	callbacks, err := p.callbacks()
	if err != nil {
		return nil, err
	}
	c := &p.Config
	m := &wiring.MaintenanceConfig{
		Log: p.Log, Checkouts: p.checkoutsConfig(), Sweep: c.Sweep.Schedule, Purge: c.Sweep.PurgeSchedule, Part: c.Task.Index, Parts: c.Task.Count,
		Bounds: sweeper.Config{Batch: c.Sweep.Batch, RequestRetention: c.Sweep.RequestRetention, AuditRetention: c.Sweep.AuditRetention},
	}
	if callbacks != nil { // else the interface would not be nil
		m.Checkouts.Validator = callbacks
	}
	if c.Metered.On {
		m.Bounds.MeteredRetention = c.Metered.Retention
	}
	return m, nil
}

// maintenanceConns is enough for passes that do one thing after another.
const maintenanceConns = 2

// Sweep runs one sweep, bounded by ONESHOT_TIME_MAX. Several processes may run
// it at once: they share the due holds.
func (p *Program) Sweep(ctx context.Context) (report sweeper.Report, err error) {
	stopped, err := p.maintain(ctx, "sweep", func(ctx context.Context, m *wiring.Maintenance) error {
		report, err = m.Sweeper.RunOnce(ctx)
		return err
	})
	report.More = report.More || stopped
	return report, err
}

// Purge runs one purge of this task's part of the streams, bounded by
// ONESHOT_TIME_MAX.
func (p *Program) Purge(ctx context.Context) (report wiring.PurgeReport, err error) {
	stopped, err := p.maintain(ctx, "purge", func(ctx context.Context, m *wiring.Maintenance) error {
		report, err = m.PurgeOnce(ctx)
		return err
	})
	report.More = report.More || stopped
	return report, err
}

// Drain decides the queued requests of this process's lanes until the lanes are
// empty, or until ONESHOT_TIME_MAX is over; see [wiring.Drain].
func (p *Program) Drain(ctx context.Context) (report wiring.DrainReport, err error) {
	db, err := p.openDrains(ctx)
	if err != nil {
		report.More = true
		return report, ignoreStop(ctx, err)
	}
	defer db.Close()
	lanes, err := wiring.NewLanes(db, p.Log, p.hotLane(), p.normalLane())
	if err != nil {
		return report, err
	}
	return wiring.Drain(ctx, lanes, p.Config.Lanes.OneShotMax)
}

// Recover takes over the requests of this process's lanes whose isolated retry
// was not finished, and the checkouts that are due, until there are no more or
// ONESHOT_TIME_MAX is over. Several processes may run it at once.
func (p *Program) Recover(ctx context.Context) (report wiring.RecoverReport, err error) {
	db, err := p.openReady(ctx, pool{name: "recover", conns: 4, parameters: shortStatements})
	if err != nil {
		report.More = true
		return report, ignoreStop(ctx, err)
	}
	defer db.Close()
	m, err := p.maintenance(db)
	if err != nil {
		return report, err
	}
	lanes, err := wiring.NewLanes(db, p.Log, p.hotLane(), p.normalLane())
	if err != nil {
		return report, err
	}
	return m.Recover(ctx, lanes, p.Config.Lanes.OneShotMax)
}

func (p *Program) maintenance(db *pgxpool.Pool) (*wiring.Maintenance, error) {
	config, err := p.maintenanceConfig()
	if err != nil {
		return nil, err
	}
	return wiring.NewMaintenance(db, *config)
}

// maintain runs a pass once the database answers. stopped means that the pass
// ended at ONESHOT_TIME_MAX, or with ctx, and work may be left. That is not an
// error: the next pass continues.
func (p *Program) maintain(ctx context.Context, job string, pass func(context.Context, *wiring.Maintenance) error) (stopped bool, err error) {
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
