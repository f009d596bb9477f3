package hot_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/verify"
)

// storefront sends requests, and records when they were sent and answered.
type storefront struct {
	*watched
	history
	intake *admission.Intake
}

func (f *storefront) send(t *testing.T, cart, variant string) {
	before := f.hotSince(variant)
	c := f.submit(t, f.intake, before != nil, requestrows.Submission{TenantID: f.Tenant, CartID: cart, VariantID: variant, Quantity: 1})
	if after := f.hotSince(variant); c != nil && (after == nil || before == nil || !after.Equal(*before)) {
		c.hot = false // not hot during the whole call
	}
}

// hotSince is when the variant became hot, nil if its requests go to the normal
// lane.
func (f *storefront) hotSince(variant string) *time.Time {
	var since *time.Time
	const sql = `SELECT max(moved_at) FROM hot_variants WHERE tenant_id = $1 AND variant_id = $2 AND state <> 'leaving'`
	if err := f.DB.QueryRow(f.TB.Context(), sql, f.Tenant, variant).Scan(&since); err != nil {
		f.TB.Error(err)
	}
	return since
}

// direct makes the detector move variants between the lanes, and divert and
// restore the tenant, until ctx ends. Two passes run at the same time, and some
// of them die before they end.
func (w *watched) direct(ctx context.Context, variants []string, promoted, demoted *atomic.Int64) {
	rates := make([]float64, len(variants))
	for ctx.Err() == nil {
		for i, v := range variants {
			if rand.IntN(4) == 0 {
				rates[i] = 500 - rates[i]
			}
			w.arrives(w.Tenant, v, rates[i])
		}
		if rand.IntN(2) == 0 {
			w.Exec(`DELETE FROM diverted_tenants`)
		} else {
			w.Exec(`INSERT INTO diverted_tenants (tenant_id, slot, why) VALUES ($1, 1, 'test') ON CONFLICT DO NOTHING`, w.Tenant)
		}
		w.later(1)
		var side sync.WaitGroup
		for range 2 {
			side.Go(func() {
				long := time.Minute
				if rand.IntN(4) == 0 {
					long = time.Duration(rand.IntN(40)) * time.Millisecond
				}
				dying, cancel := context.WithTimeout(ctx, long)
				defer cancel()
				if done, err := w.detector.RunOnce(dying); err == nil {
					promoted.Add(int64(done.Promoted))
					demoted.Add(int64(done.Demoted))
				}
			})
		}
		side.Wait()
	}
}

// Variants move between the lanes, and their tenant between the streams, under
// load. Every request is decided once, and a cart's requests for a variant in
// their order. While a variant is hot, a request is not decided before one that
// had been answered when it was sent.
func TestMovesUnderLoad(t *testing.T) {
	t.Parallel()
	const carts, least, most, moves = 8, 60, 2000, 6
	w := newWatched(t, hot.DetectorConfig{PromoteAfter: time.Nanosecond, DemoteAfter: time.Nanosecond})
	variants := []string{"shoe", "sock", "hat"}
	w.Stock("shoe", carts*most)
	w.Stock("sock", 20)
	w.Stock("hat", 0)
	front := &storefront{watched: w, intake: w.Intake(admission.IntakeConfig{GroupMax: 5, QueueMax: 1000, Committers: 4})}
	ctx, stop := context.WithCancel(t.Context())
	var directing, callers sync.WaitGroup
	var promoted, demoted atomic.Int64
	directing.Go(func() { w.direct(ctx, variants, &promoted, &demoted) })
	defer directing.Wait()
	defer stop()
	stopWork := w.Work(ofBothKinds(w.Fixture, 5)...)
	defer stopWork()
	for c := range carts {
		callers.Go(func() {
			for n := 0; n < least || n < most && min(promoted.Load(), demoted.Load()) < moves; n++ {
				front.send(t, fmt.Sprint("cart-", c), variants[rand.IntN(len(variants))])
			}
		})
	}
	callers.Wait()
	w.Until("nothing is queued", func() bool {
		return w.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`) == 0
	})
	stop()
	directing.Wait()
	stopWork()
	if n := min(promoted.Load(), demoted.Load()); n < moves {
		t.Errorf("%d were promoted and demoted, too few for this test", n)
	}
	if n, moved := w.Int(`SELECT count(*) FROM audit_log WHERE action LIKE 'lane.%'`), promoted.Load()+demoted.Load(); n < moved {
		t.Errorf("%d records of %d moves", n, moved) // more if a pass died after its commit
	}
	w.CheckInvariants()
	all := outcomes(t, w.Fixture)
	if len(all) != len(front.calls) {
		t.Errorf("%d of %d requests are decided", len(all), len(front.calls))
	}
	hots := 0
	for _, c := range front.calls {
		if c.hot {
			hots++
		}
	}
	t.Logf("%d pairs of the hot lane in order, of %d requests, %d of them sent while hot", front.mustNotOvertake(t, all), len(front.calls), hots)
	if hots == 0 || hots == len(front.calls) {
		t.Error("all were sent to one lane, so the test proves nothing")
	}
	report, err := verify.Run(t.Context(), w.DB, verify.Config{})
	if err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
}
