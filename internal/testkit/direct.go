package testkit

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

// Settle ticks until no variant moves between the lanes, and waits until the
// intake has read which variants are hot. Until then requests are queued.
func (f *Fixture) Settle(in *admission.Intake) {
	f.TB.Helper()
	probe := requestrows.Submission{TenantID: uuid.New(), CartID: "probe", VariantID: "probe", Quantity: 1, Waits: true}
	f.setStock(probe.TenantID, probe.VariantID, 0)
	f.Must(lanes.Pin(f.TB.Context(), f.DB, f.Inserter, probe.TenantID, probe.VariantID))
	lane := f.HotLane(queues.LaneConfig{})
	f.Until("no variant moves between the lanes", func() bool {
		f.Tick(lane)
		return f.Int(`SELECT count(*) FROM hot_variants WHERE state <> 'hot'`) == 0
	})
	f.Until("the intake decides what is hot", func() bool {
		r, err := in.Submit(f.TB.Context(), probe)
		f.Must(err)
		f.Tick(lane)
		return r.Status.Finished()
	})
	for _, sql := range []string{
		`DELETE FROM hot_variants WHERE tenant_id = $1`, `DELETE FROM inventory_stocks WHERE tenant_id = $1`,
		`DELETE FROM audit_log WHERE tenant_id = $1`, `DELETE FROM reservation_requests WHERE tenant_id = $1`,
	} {
		f.Exec(sql, probe.TenantID)
	}
}

// NewDecider makes a decider, as each process does.
func (f *Fixture) NewDecider(config queues.DrainConfig) *Decider {
	f.TB.Helper()
	direct, err := queues.NewDirect(f.DB, slog.New(slog.DiscardHandler), config)
	f.Must(err)
	return &Decider{Direct: direct}
}

// SubmitDirect admits a request through the intake, for a caller of the fixture's
// tenant that waits. It returns what the caller receives.
func (f *Fixture) SubmitDirect(in *admission.Intake, s requestrows.Submission) requests.View {
	f.TB.Helper()
	s.TenantID, s.Waits = f.Tenant, true
	v, _, err := in.SubmitMetered(f.TB.Context(), s, admission.Credentials{})
	f.Must(err)
	return v
}

// Decider is a queues.Direct that counts what it decides.
type Decider struct {
	*queues.Direct
	// Before, if not nil, is called ahead of each decision. The decision uses
	// the transaction that it returns.
	Before func(ctx context.Context, tx pgx.Tx) (pgx.Tx, error)

	decided, tried atomic.Int64
}

// Decided is how many requests were decided as they were admitted.
func (d *Decider) Decided() int64 { return d.decided.Load() }

// Tried is how many decisions were begun.
func (d *Decider) Tried() int64 { return d.tried.Load() }

// Queue implements queues.Direct.
func (d *Decider) Queue(b *pgx.Batch, lane lanes.Lane, group []requestrows.Submission) queues.Decision {
	return &decision{Decision: d.Direct.Queue(b, lane, group), decider: d}
}

type decision struct {
	queues.Decision
	decider *Decider
	decided int
}

func (d *decision) DecideTx(ctx context.Context, tx pgx.Tx, b *pgx.Batch, inserted []requests.Request) (views []requests.View, err error) {
	d.decider.tried.Add(1)
	if before := d.decider.Before; before != nil {
		if tx, err = before(ctx, tx); err != nil {
			return nil, err
		}
	}
	views, err = d.Decision.DecideTx(ctx, tx, b, inserted)
	d.decided = len(views)
	return views, err
}

func (d *decision) Committed(ctx context.Context) {
	d.Decision.Committed(ctx)
	d.decider.decided.Add(int64(d.decided))
}
