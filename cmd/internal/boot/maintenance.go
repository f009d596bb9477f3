package boot

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/wiring"
	"github.com/holdfast/holdfast/verify"
)

// RunOnce runs one bounded pass of this task's part of the work, within
// ONESHOT_TIME_MAX. Several processes may run it at once. A stop before the
// database answers is no error: the next pass does the work.
func (p *Program) RunOnce(ctx context.Context, pass string) (report any, err error) {
	open := func() (*pgxpool.Pool, error) {
		return p.openReady(ctx, pool{name: pass, conns: passConns, parameters: shortStatements})
	}
	if pass == "drain" {
		open = func() (*pgxpool.Pool, error) { return p.openDrains(ctx) }
	}
	db, err := open()
	report = wiring.Unfinished(pass)
	switch {
	case err != nil && ctx.Err() != nil:
		return report, nil
	case err != nil:
		return report, err
	}
	defer db.Close()
	config, err := p.clientConfig()
	if err != nil {
		return report, err
	}
	config.NoIntake = true
	client, err := holdfast.New(db, &config)
	if err != nil {
		return report, err
	}
	return client.RunOnce(ctx, pass, p.Config.Lanes.OneShotMax)
}

// passConns is enough for passes that do one thing after another, and for the
// two parts of a recovery.
const passConns = 4

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
	return verify.Run(ctx, db, limits)
}
