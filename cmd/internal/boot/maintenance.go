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
	open := p.openDrains
	if own, is := passPools[pass]; is {
		open = func(ctx context.Context) (*pgxpool.Pool, error) { return p.openReady(ctx, own) }
	}
	db, err := open(ctx)
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

// passPools are the pools of the passes that do one thing after another, two
// for a recovery. A drain has the pool of the lanes.
var passPools = map[string]pool{
	"sweep":   {name: "sweep", conns: 2, parameters: shortStatements},
	"purge":   {name: "purge", conns: 2, parameters: shortStatements},
	"recover": {name: "recover", conns: 4, parameters: shortStatements},
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
	return verify.Run(ctx, db, limits)
}
