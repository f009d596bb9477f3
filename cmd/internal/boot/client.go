package boot

import (
	"context"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/checkouts/callback"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/telemetry/export"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/sweeper"
)

// groupMax is how many requests one transaction of the intake admits at most.
const groupMax = 500

// clientConfig configures the library's client as the environment says, with
// every role that this process can have.
func (p *Program) clientConfig() (holdfast.Config, error) {
	c := &p.Config
	working, closing := p.stopTimes()
	sagas, err := p.checkoutsConfig()
	roles := holdfast.Config{
		Log: p.Log, RiverLog: p.logs.river(), NoDetector: !c.Detect.On, NoProjections: !c.Projections,
		Terms: inventory.Terms{TTL: c.Holds.TTL, LifetimeMax: c.Holds.LifetimeMax}, QueueAgeMax: c.Lanes.QueueAgeMax,
		Rates: holdfast.Rates{Tenant: rate(c.Metered.TenantBudget), Customer: rate(c.Metered.CustomerBudget)},
		Intake: admission.IntakeConfig{
			GroupMax: min(groupMax, c.Intake.QueueMax), QueueMax: c.Intake.QueueMax, DepthMax: c.Intake.DepthMax,
			TenantSharePercent: c.Intake.TenantShare, Metered: c.Metered.On,
		},
		Groups: carts.Config{QueueMax: c.Intake.QueueMax, GroupMax: min(200, c.Intake.QueueMax)},
		Hot:    p.lane(lanes.Hot, c.Lanes.HotBatch, c.Lanes.HotConcurrency), Normal: p.lane(lanes.Normal, c.Lanes.NormalBatch, c.Lanes.NormalConcurrency),
		Detector: hot.DetectorConfig{
			PromoteRate: float64(c.Detect.PromoteRate), VariantsMax: c.Detect.VariantsMax, FloodRate: float64(c.Detect.FloodRate),
		},
		Maintenance: sweeper.Config{Batch: c.Sweep.Batch, RequestRetention: c.Sweep.RequestRetention, AuditRetention: c.Sweep.AuditRetention},
		Checkouts:   sagas, Sweep: c.Sweep.Schedule, Purge: c.Sweep.PurgeSchedule,
		Part: c.Task.Index, Parts: c.Task.Count, StopTimeout: working, CloseTimeout: closing,
	}
	if c.Metered.On {
		roles.Maintenance.MeteredRetention = c.Metered.Retention
	} else {
		roles.Rates = holdfast.Rates{}
	}
	if export.TracesAsked() {
		roles.RiverMiddleware = []rivertype.Middleware{otelriver.NewMiddleware(nil)}
	}
	return roles, err
}

// startClient starts a client, whose roles outlive ctx, and waits for the
// database; see awaitLong.
func (p *Program) startClient(ctx context.Context, client *holdfast.Client) error {
	return p.awaitLong(ctx, func() error {
		starting, cancel := context.WithTimeout(telemetry.WithCell(context.WithoutCancel(ctx), p.cell), attemptMax)
		defer cancel()
		return client.Start(starting)
	})
}

// lane configures a lane, which is off unless this process serves it. The slots
// of the hot lane are divided between the tasks. All tasks serve the normal lane,
// because its drains share the work anyway.
func (p *Program) lane(name lanes.Lane, batch, concurrency int) queues.LaneConfig {
	return queues.LaneConfig{Off: !p.serves(name), DrainConfig: queues.DrainConfig{Batch: batch}, Concurrency: concurrency}
}

func rate(b config.Budget) ratelimit.Rate { return ratelimit.Rate{Limit: b.Limit, Window: b.Window} }

// checkoutsConfig bounds checkouts, and calls payment services if there is a
// CHECKOUT_CALLBACK_SECRET. A step may take a second longer than a callback, so
// that the callback's own error is the one that is logged.
func (p *Program) checkoutsConfig() (checkouts.Config, error) {
	c := &p.Config.Checkout
	bounds := checkouts.Config{TTL: c.TTL, AttemptTimeout: c.CallbackTimeout + time.Second, Concurrency: c.CallbackConcurrency}
	secret, err := c.Secret()
	if err != nil || secret.IsZero() {
		return bounds, err
	}
	validator, err := callback.New(callback.Config{Secret: secret, Timeout: c.CallbackTimeout, AllowPrivate: c.CallbackPrivate})
	if err == nil {
		bounds.Validator = validator
	}
	return bounds, err
}
