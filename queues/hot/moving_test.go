package hot_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/verify"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/requests"
)

// sending is one call of a storefront, on a clock that only counts.
type sending struct {
	requests.Request
	sent, answered int64
	hot            bool // the variant was hot all the while
}

// storefront sends requests and notes when.
type storefront struct {
	*watched
	intake *requests.Intake
	clock  atomic.Int64
	mu     sync.Mutex
	sent   []sending
}

func (f *storefront) send(cart, variant string) {
	before := f.hotSince(variant)
	s := sending{sent: f.clock.Add(1)}
	r, err := f.intake.Submit(f.TB.Context(), requests.Submission{TenantID: f.Tenant, CartID: cart, VariantID: variant, Quantity: 1})
	if err != nil {
		f.TB.Error(err)
		return
	}
	s.Request, s.answered = r, f.clock.Add(1)
	after := f.hotSince(variant)
	s.hot = before != nil && after != nil && after.Equal(*before)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, s)
}

// hotSince is when the variant became hot, nil if its requests go to the normal lane.
func (f *storefront) hotSince(variant string) *time.Time {
	var since *time.Time
	const sql = `SELECT max(moved_at) FROM hot_variants WHERE tenant_id = $1 AND variant_id = $2 AND state <> 'leaving'`
	if err := f.DB.QueryRow(f.TB.Context(), sql, f.Tenant, variant).Scan(&since); err != nil {
		f.TB.Error(err)
	}
	return since
}

// direct lets the detector move variants to and fro, and diverts the tenant and lets it back, until ctx ends: two passes at
// one time, some of which die on their way.
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

// Variants move to and fro between the lanes, and their tenant between the streams, under load from all sides. Every request
// is decided once; a cart's requests for a variant in their order; and nobody who asked while a variant was hot before
// somebody who had been answered by then.
func TestMovesUnderLoad(t *testing.T) {
	t.Parallel()
	const carts, least, most, moves = 8, 60, 2000, 6
	w := newWatched(t, hot.DetectorConfig{PromoteAfter: time.Nanosecond, DemoteAfter: time.Nanosecond})
	variants := []string{"shoe", "sock", "hat"}
	w.Stock("shoe", carts*most)
	w.Stock("sock", 20)
	w.Stock("hat", 0)
	front := &storefront{watched: w, intake: w.Intake(requests.IntakeConfig{GroupMax: 5, LineMax: 1000, Committers: 4})}
	ctx, stop := context.WithCancel(t.Context())
	var workers, callers sync.WaitGroup
	var promoted, demoted atomic.Int64
	workers.Go(func() { w.direct(ctx, variants, &promoted, &demoted) })
	for range 2 {
		small := queues.LaneConfig{DrainConfig: queues.DrainConfig{Batch: 5}}
		hotLane, err := hot.NewLane(w.DB, discard, small)
		if err != nil {
			t.Fatal(err)
		}
		for _, lane := range []*queues.Lane{hotLane, w.Lane(small)} {
			workers.Go(func() {
				for ctx.Err() == nil {
					if _, err := lane.Tick(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
	}
	for c := range carts {
		callers.Go(func() {
			for n := 0; n < least || n < most && min(promoted.Load(), demoted.Load()) < moves; n++ {
				front.send(fmt.Sprint("cart-", c), variants[rand.IntN(len(variants))])
			}
		})
	}
	callers.Wait()
	for deadline := time.Now().Add(60 * time.Second); w.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'queued'`) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("requests are left")
		}
	}
	stop()
	workers.Wait()
	if n := min(promoted.Load(), demoted.Load()); n < moves {
		t.Errorf("%d were promoted and demoted: little was shown", n)
	}
	if n, moved := w.Int(`SELECT count(*) FROM audit_log WHERE action LIKE 'lane.%'`), promoted.Load()+demoted.Load(); n < moved {
		t.Errorf("%d records of %d moves", n, moved) // more: a pass died when it had committed
	}
	w.Sound()
	front.mustStandInOrder()
	report, err := verify.Config{}.Run(t.Context(), w.DB)
	if err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
}

// mustStandInOrder fails the test unless decisions were in order. The audit ids tell: they are drawn under the stock's lock.
func (f *storefront) mustStandInOrder() {
	f.TB.Helper()
	rows, err := f.DB.Query(f.TB.Context(), `SELECT target_id, audit_id FROM audit_log WHERE action IN ('reservation.held', 'request.failed')`)
	if err != nil {
		f.TB.Fatal(err)
	}
	decided := make(map[uuid.UUID]int64)
	var id uuid.UUID
	var auditID int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &auditID}, func() error { decided[id] = auditID; return nil }); err != nil {
		f.TB.Fatal(err)
	}
	if len(decided) != len(f.sent) {
		f.TB.Errorf("%d of %d requests are decided", len(decided), len(f.sent))
	}
	pairs, hots := 0, 0
	for i := range f.sent {
		later := &f.sent[i]
		if later.hot {
			hots++
		}
		for j := range f.sent {
			earlier := &f.sent[j]
			if earlier.VariantID != later.VariantID || earlier.answered > later.sent || !later.hot && earlier.CartID != later.CartID {
				continue
			}
			if pairs++; decided[earlier.RequestID] > decided[later.RequestID] {
				f.TB.Errorf("request %s of %s for a %s was decided before %s of %s, which had been answered when it was sent (hot: %t)",
					later.RequestID, later.CartID, later.VariantID, earlier.RequestID, earlier.CartID, later.hot)
			}
		}
	}
	f.TB.Logf("%d pairs in order, of %d requests, %d of them sent while hot", pairs, len(f.sent), hots)
	if hots == 0 || hots == len(f.sent) {
		f.TB.Error("all were sent to one lane: nothing was shown")
	}
}
