package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// benchItems is the size of the batches.
const benchItems = 200

// batchBench describes the items of a batch: whether each uses the shop's rate,
// a separate rate, a token. The customers are new, as at the beginning of a
// sale, or known.
type batchBench struct {
	name                           string
	shop, customers, known, tokens bool
}

// BenchmarkBatch decides batches of 200, each in a separate transaction.
func BenchmarkBatch(bench *testing.B) {
	for _, c := range []batchBench{
		{name: "tokens", tokens: true},
		{name: "shop", shop: true},
		{name: "customers/new", customers: true},
		{name: "customers/known", customers: true, known: true},
		{name: "all/new", shop: true, customers: true, tokens: true},
		{name: "all/known", shop: true, customers: true, tokens: true, known: true},
	} {
		bench.Run(c.name, func(bench *testing.B) {
			b := newBundle(bench)
			batches := make([][]item, bench.N+1)
			for n := range batches {
				batches[n] = c.batch(b, n)
			}
			c.run(b, batches[bench.N])
			bench.ResetTimer()
			for _, items := range batches[:bench.N] {
				c.run(b, items)
			}
			bench.ReportMetric(float64(bench.N*benchItems)/bench.Elapsed().Seconds(), "items/s")
			bench.ReportMetric(float64(bench.Elapsed().Microseconds())/float64(bench.N)/1000, "ms/batch")
		})
	}
}

// run counts all items of a batch, and redeems their tokens.
func (c batchBench) run(b *bundle, items []item) {
	b.t.Helper()
	mode := countAll
	if c.tokens {
		mode = redeemAll
	}
	for _, r := range b.decide(mode, items...) {
		if r.Err != nil {
			b.t.Fatal(r.Err)
		}
	}
}

// batch returns the nth batch.
func (c batchBench) batch(b *bundle, n int) []item {
	b.t.Helper()
	grants, items := make([]metered.Grant, benchItems), make([]item, benchItems)
	for i := range grants {
		grants[i] = metered.Grant{Purpose: "sale", Subject: fmt.Sprint("customer:", i), TTL: time.Hour}
	}
	minted := make([]metered.Minted, benchItems)
	if c.tokens {
		var err error
		minted, err = b.tokens.Mint(b.t.Context(), b.tenant, grants...)
		b.must(err)
	}
	for i := range items {
		customer := fmt.Sprint("add-to-cart:customer:", i)
		if !c.known {
			customer = fmt.Sprint("add-to-cart:customer:", n, ":", i)
		}
		var rates []ratelimit.Rate
		if c.shop {
			rates = append(rates, wide("add-to-cart"))
		}
		if c.customers {
			rates = append(rates, wide(customer))
		}
		items[i] = b.itemOf(b.tenant, &metered.Redemption{Purpose: "sale", Subject: grants[i].Subject, Token: minted[i].Token}, rates...)
	}
	return items
}

// wide is a rate that is never exceeded.
func wide(scope string) ratelimit.Rate {
	return ratelimit.Rate{Scope: scope, Amount: 1, Limit: ratelimit.RateLimitMax, Window: ratelimit.RateWindowMax}
}
