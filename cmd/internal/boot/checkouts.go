package boot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/checkouts"
	"github.com/holdfast/holdfast/checkouts/callback"
)

// recoverEvery is how often a worker takes the checkouts that are due.
const recoverEvery = time.Second

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
	return checkouts.Config{
		TTL: c.TTL, Log: p.Log, AttemptTimeout: c.CallbackTimeout + time.Second, Concurrency: c.CallbackConcurrency, Every: recoverEvery,
	}
}

// recovery makes the recovery of checkouts, which makes the callbacks.
func (p *Program) recovery(db *pgxpool.Pool) (*checkouts.Recovery, error) {
	callbacks, err := p.callbacks()
	if err != nil {
		return nil, err
	}
	c := p.checkoutsConfig()
	if callbacks != nil { // else the interface would not be nil
		c.Validator = callbacks
	}
	return checkouts.NewRecovery(db, c)
}

// recover takes the checkouts that are due.
func (m *maintenance) recover(ctx context.Context) (more bool, err error) {
	report, err := m.recovery.RunOnce(ctx)
	if report != (checkouts.Report{Claimed: report.Pending, Pending: report.Pending}) {
		m.log.InfoContext(ctx, "recovered checkouts", "report", report)
	}
	return report.Unfinished(), err
}

// recoverCheckouts takes the checkouts that are due, until none is or ctx ends.
func (p *Program) recoverCheckouts(ctx context.Context, db *pgxpool.Pool) (report checkouts.Report, err error) {
	recovery, err := p.recovery(db)
	if err != nil {
		return report, err
	}
	for {
		pass, err := recovery.RunOnce(ctx)
		report.Claimed += pass.Claimed
		report.Committed += pass.Committed
		report.Compensated += pass.Compensated
		report.Failed += pass.Failed
		report.Pending += pass.Pending
		report.AskedLate += pass.AskedLate
		report.Errors += pass.Errors
		report.More = pass.More || ctx.Err() != nil
		if ctx.Err() != nil || err != nil || !pass.Unfinished() {
			return report, ignoreStop(ctx, err)
		}
	}
}
