package requests_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/lanetest"
	"github.com/holdfast/holdfast/internal/plans"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/queues/normal"
	"github.com/holdfast/holdfast/requests"
)

// BenchmarkAdmitMetered admits requests in groups of 200, as the API does, without and with what metered commands add:
// a rate of the tenant's, one of each customer's, and a token that each spends.
func BenchmarkAdmitMetered(b *testing.B) {
	for _, c := range []struct {
		name          string
		rates, tokens bool
		committers    int
	}{
		{name: "plain"}, {name: "rates", rates: true}, {name: "tokens", tokens: true}, {name: "rates+tokens", rates: true, tokens: true},
		{name: "plain2", committers: 2}, {name: "rates+tokens2", rates: true, tokens: true, committers: 2},
	} {
		b.Run(c.name, func(b *testing.B) {
			bench := lanetest.New(b, requests.Normal, normal.NewLane)
			bench.Stock("shoe", 1)
			config := bench.DB.Config()
			plans.Keep(config)
			db, err := pgxpool.NewWithConfig(context.Background(), config)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(db.Close)
			bench.DB = db
			passes := make([]requests.Pass, b.N)
			if c.rates || c.tokens {
				if err := migrations.UpMetered(b.Context(), db); err != nil {
					b.Fatal(err)
				}
			}
			if c.tokens {
				bench.Exec(`UPDATE inventory_stocks SET admission = 'token'`)
				store := metered.NewTokenStore(db)
				for i := 0; i < b.N; i += 1000 {
					grants := make([]metered.Grant, min(1000, b.N-i))
					for k := range grants {
						grants[k] = metered.Grant{Purpose: requests.AdmissionPurpose("shoe"), Subject: "customer-" + strconv.Itoa(i+k), TTL: time.Hour}
					}
					minted, err := store.MintMany(b.Context(), bench.Tenant, grants)
					if err != nil {
						b.Fatal(err)
					}
					for k, m := range minted {
						passes[i+k].Token = m.Token
						passes[i+k].Subject = grants[k].Subject
					}
				}
			}
			if c.rates {
				for i := range passes {
					passes[i].Rates = []metered.Rate{
						{Scope: "tenant", Amount: 1, Limit: 1e9, Window: time.Minute},
						{Scope: "customer:customer-" + strconv.Itoa(i), Amount: 1, Limit: 10, Window: time.Minute},
					}
				}
			}
			in := bench.Intake(requests.IntakeConfig{GroupMax: 200, DepthMax: 1 << 30, TenantSharePercent: 100, Metered: c.rates || c.tokens, Committers: c.committers})
			var callers sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			for range 400*max(1, c.committers) {
				callers.Go(func() {
					for i := left.Add(-1); i >= 0; i = left.Add(-1) {
						s := requests.Submission{
							TenantID: bench.Tenant, CartID: fmt.Sprint("cart-", i), VariantID: "shoe", Quantity: 1,
							IdempotencyKey: fmt.Sprint("key-", i), ActorID: "hf_shop", CorrelationID: fmt.Sprint("c-", i),
						}
						if _, _, err := in.SubmitMetered(context.Background(), s, passes[i]); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			callers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
