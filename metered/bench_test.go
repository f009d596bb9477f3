package metered_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/metered"
)

// benchMembers is how large the groups are.
const benchMembers = 200

// passBench is what each member of a group asks for: the shop's budget, one of its own, a token. The customers are new, as
// at the beginning of a sale, or known.
type passBench struct {
	name                           string
	shop, customers, known, tokens bool
}

// BenchmarkPass lets groups of 200 through, each in a transaction of its own.
func BenchmarkPass(bench *testing.B) {
	for _, c := range []passBench{
		{name: "tokens", tokens: true},
		{name: "shop", shop: true},
		{name: "customers/known", customers: true, known: true},
		{name: "all/new", shop: true, customers: true, tokens: true},
		{name: "all/known", shop: true, customers: true, tokens: true, known: true},
	} {
		bench.Run(c.name, func(bench *testing.B) {
			b := newBundle(bench)
			groups := make([][]metered.Pass, bench.N+1)
			for g := range groups {
				groups[g] = c.group(b, g)
			}
			b.pass(groups[bench.N])
			bench.ResetTimer()
			for _, g := range groups[:bench.N] {
				b.pass(g)
			}
			bench.ReportMetric(float64(bench.N*benchMembers)/bench.Elapsed().Seconds(), "members/s")
			bench.ReportMetric(float64(bench.Elapsed().Microseconds())/float64(bench.N)/1000, "ms/group")
		})
	}
}

// BenchmarkTurnstile lets the same groups through a turnstile, where what they ask for are rates.
func BenchmarkTurnstile(bench *testing.B) {
	for _, c := range []passBench{
		{name: "tokens", tokens: true},
		{name: "shop", shop: true},
		{name: "customers/new", customers: true},
		{name: "customers/known", customers: true, known: true},
		{name: "all/new", shop: true, customers: true, tokens: true},
		{name: "all/known", shop: true, customers: true, tokens: true, known: true},
	} {
		bench.Run(c.name, func(bench *testing.B) {
			b := newBundle(bench)
			groups := make([][]metered.Visit, bench.N+1)
			for g := range groups {
				for _, p := range c.group(b, g) {
					rates := make([]metered.Rate, len(p.Reserve))
					for i, asked := range p.Reserve {
						rates[i] = metered.Rate{Scope: asked.Scope, Amount: 1, Limit: metered.RateLimitMax, Window: metered.RateWindowMax}
					}
					groups[g] = append(groups[g], b.visitOf(p.TenantID, p.Spend, rates...))
				}
			}
			b.letIn(c.tokens, groups[bench.N])
			bench.ResetTimer()
			for _, g := range groups[:bench.N] {
				b.letIn(c.tokens, g)
			}
			bench.ReportMetric(float64(bench.N*benchMembers)/bench.Elapsed().Seconds(), "members/s")
			bench.ReportMetric(float64(bench.Elapsed().Microseconds())/float64(bench.N)/1000, "ms/group")
		})
	}
}

// letIn lets all of a group in, and spends the tokens it has.
func (b *bundle) letIn(tokens bool, group []metered.Visit) {
	b.t.Helper()
	treat := counted
	if tokens {
		treat = guarded
	}
	for _, e := range b.enter(treat, group...) {
		if e.Err != nil {
			b.t.Fatal(e.Err)
		}
	}
}

// group is the gth group.
func (c passBench) group(b *bundle, g int) []metered.Pass {
	grants, passes := make([]metered.Grant, benchMembers), make([]metered.Pass, benchMembers)
	for i := range grants {
		grants[i] = metered.Grant{Purpose: "sale", Subject: fmt.Sprint("customer:", i), TTL: time.Hour}
	}
	var minted []metered.Minted
	if c.tokens {
		minted = must(b, func() ([]metered.Minted, error) { return b.tokens.MintMany(b.t.Context(), b.tenant, grants) })
	}
	for i := range passes {
		p := &passes[i]
		p.TenantID = b.tenant
		customer := fmt.Sprint("add-to-cart:customer:", i)
		if !c.known {
			customer = fmt.Sprint("add-to-cart:customer:", g, ":", i)
		}
		if c.shop {
			p.Reserve = append(p.Reserve, charge("add-to-cart", 1, metered.AmountMax, time.Minute))
		}
		if c.customers {
			p.Reserve = append(p.Reserve, charge(customer, 1, metered.AmountMax, time.Minute))
		}
		if c.tokens {
			p.Spend = &metered.Redemption{Purpose: "sale", Subject: fmt.Sprint("customer:", i), Token: minted[i].Token}
		}
	}
	return passes
}

// pass lets all of a group through.
func (b *bundle) pass(group []metered.Pass) {
	b.t.Helper()
	b.must(b.inTx(func(tx pgx.Tx) error {
		verdicts, err := b.gate.PassTx(b.t.Context(), tx, group)
		for _, v := range verdicts {
			if v.Err != nil {
				b.t.Fatal(v.Err)
			}
		}
		return err
	}))
}

// BenchmarkReserve charges a scope whose ledger has so many entries in its window, one reservation a transaction; and sums
// it up.
func BenchmarkReserve(bench *testing.B) {
	for _, entries := range []int{1_000, 1_000_000} {
		b := newBundle(bench)
		c := charge("s", 1, metered.AmountMax, 24*time.Hour)
		b.exec(`INSERT INTO budget_ledger (tenant_id, scope, recorded_at, amount)
			SELECT $1, 's', now() - n * interval '50 ms', 1 FROM generate_series(1, $2::int) AS n`, b.tenant, entries)
		b.exec(`INSERT INTO budget_scopes (tenant_id, scope, last_at, sums) VALUES ($1, 's', now(), '{}')`, b.tenant)
		b.exec(`VACUUM ANALYZE budget_ledger, budget_scopes`)
		b.exec(`CHECKPOINT`)
		began := b.now()
		b.reserve(c)
		bench.Logf("%d entries: counting the window anew took %s", entries, b.now().Sub(began))
		bench.Run(fmt.Sprint("entries=", entries), func(bench *testing.B) {
			for range bench.N {
				b.reserve(c)
			}
		})
		bench.Run(fmt.Sprint("sum/entries=", entries), func(bench *testing.B) {
			for range bench.N {
				b.sum("s", 24*time.Hour)
			}
		})
	}
}
