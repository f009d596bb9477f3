package queuestest

import (
	"context"
	"flag"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

var (
	firstSeed = flag.Uint64("seed", 1, "the first seed of the tests that draw at random")
	moreSeeds = flag.Int("seeds", 0, "how many seeds those tests try; 0 for as many as each has by default")
)

// Seeds returns the seeds for a test that draws at random. There are n of them,
// or as many as the flag -seeds sets, from -seed on.
func Seeds(n int) []uint64 {
	if *moreSeeds > 0 {
		n = *moreSeeds
	}
	seeds := make([]uint64, n)
	for i := range seeds {
		seeds[i] = *firstSeed + uint64(i)
	}
	return seeds
}

// Path is how the requests of a bench are admitted.
type Path int

const (
	// Queued requests are admitted by admission.SubmitTx, and decided by a
	// drain.
	Queued Path = iota
	// Direct requests come from callers that wait. They are decided as they are
	// admitted, where that is allowed.
	Direct
	// Mixed requests take either path, drawn at random.
	Mixed
)

// Decide makes the bench's requests take the path from now on. seed is for
// Mixed.
func (b *Bench) Decide(path Path, seed uint64) {
	b.TB.Helper()
	if path == Mixed {
		b.TB.Logf("seed %d", seed)
	}
	b.path, b.random = path, rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a failure must be repeatable
	if path != Queued {
		b.Decider = b.NewDecider(queues.DrainConfig{})
		b.intake = b.Intake(admission.IntakeConfig{})
	}
}

// settled is Intake. If the intake decides, it waits until the intake has read
// which variants are hot.
func (b *Bench) settled(config admission.IntakeConfig) *admission.Intake {
	b.TB.Helper()
	in := b.Intake(config)
	if b.path != Queued && b.Hot {
		b.Settle(in)
	}
	return in
}

// Settle ticks until no variant moves between the lanes, and waits until the
// intake has read which variants are hot. Until then requests are queued.
func (b *Bench) Settle(in *admission.Intake) {
	b.TB.Helper()
	probe := requestrows.Submission{TenantID: uuid.New(), CartID: "probe", VariantID: "probe", Quantity: 1, Waits: true}
	b.setStock(probe.TenantID, probe.VariantID, 0)
	if err := lanes.Pin(b.TB.Context(), b.DB, b.Inserter, probe.TenantID, probe.VariantID); err != nil {
		b.TB.Fatal(err)
	}
	lane := b.HotLane(queues.LaneConfig{})
	b.Eventually("no variant moves between the lanes", func() bool {
		b.Tick(lane)
		return b.Int(`SELECT count(*) FROM hot_variants WHERE state <> 'hot'`) == 0
	})
	b.Eventually("the intake decides what is hot", func() bool {
		r, err := in.Submit(b.TB.Context(), probe)
		if err != nil {
			b.TB.Fatal(err)
		}
		b.Tick(lane)
		return r.Status.Finished()
	})
	for _, sql := range []string{
		`DELETE FROM hot_variants WHERE tenant_id = $1`, `DELETE FROM inventory_stocks WHERE tenant_id = $1`,
		`DELETE FROM audit_log WHERE tenant_id = $1`, `DELETE FROM reservation_requests WHERE tenant_id = $1`,
	} {
		b.Exec(sql, probe.TenantID)
	}
}

// waits draws whether the next request is of a caller that waits. It is not
// safe for concurrent use.
func (b *Bench) waits() bool {
	return b.path == Direct || b.path == Mixed && b.random.IntN(2) == 0
}

// NewDecider makes a decider, as each process does.
func (b *Bench) NewDecider(config queues.DrainConfig) *Decider {
	b.TB.Helper()
	direct, err := queues.NewDirect(b.DB, slog.New(slog.DiscardHandler), config)
	if err != nil {
		b.TB.Fatal(err)
	}
	return &Decider{Direct: direct}
}

// SubmitDirect admits a request through the intake, for a caller of the bench's
// tenant that waits. It returns what the caller receives.
func (b *Bench) SubmitDirect(in *admission.Intake, s requestrows.Submission) requests.View {
	b.TB.Helper()
	s.TenantID, s.Waits = b.Tenant, true
	v, _, err := in.SubmitMetered(b.TB.Context(), s, admission.Credentials{})
	if err != nil {
		b.TB.Fatal(err)
	}
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

// RunDirect runs the cases of the suite that apply to direct decision, for the
// given lane: once with all callers waiting, and once with some that do not
// wait.
func RunDirect(t *testing.T, lane lanes.Lane, newLane NewLane) {
	t.Helper()
	for name, path := range map[string]Path{"direct": Direct, "mixed": Mixed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, test := range cases {
				if test.direct == never || test.direct == may && path == Direct {
					continue
				}
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					seeds := Seeds(1)
					if path == Direct {
						seeds = seeds[:1]
					}
					for _, seed := range seeds {
						b := New(t, lane, newLane)
						b.Decide(path, seed)
						test.run(b)
						if path == Direct && b.Decider.Decided() == 0 {
							t.Error("no request was decided as it was admitted")
						}
					}
				})
			}
		})
	}
}
