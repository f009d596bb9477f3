package metered_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast/holdfast/metered"
)

// BenchmarkCommand runs commands, each in a separate transaction. They charge a
// shared budget and a separate one, redeem a token and start a job.
func BenchmarkCommand(bench *testing.B) {
	b := newBundle(bench)
	commands := make([]metered.Command, bench.N)
	for i := range commands {
		commands[i] = b.command(b.mint())
		commands[i].Start.IdempotencyKey = ""
		commands[i].Reserve = []metered.Charge{
			charge("all", 1, metered.AmountMax, time.Minute), charge(fmt.Sprint("customer:", i), 1, metered.AmountMax, time.Minute),
		}
	}
	bench.ResetTimer()
	for _, command := range commands {
		if _, err := b.commands.Run(bench.Context(), command); err != nil {
			bench.Fatal(err)
		}
	}
}

// BenchmarkReserve charges a scope whose ledger has the given number of entries
// in its window, one reservation per transaction. It also measures the sum over
// the window.
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
		bench.Logf("%d entries: counting the window from the ledger took %s", entries, b.now().Sub(began))
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
