package verify_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/migrations"
	"github.com/holdfast/holdfast/verify"
)

// oneEntry is a condition that selects one entry of the ledger.
func oneEntry(where string) string { return one("budget_ledger", "recorded_at", where) }

var meteredDamages = []damage{
	{"an entry of a budget is gone", []string{`DELETE FROM budget_ledger WHERE ` + oneEntry(`scope = 'plain'`)}, []string{"budget_counted"}},
	{"an entry got another amount", []string{`UPDATE budget_ledger SET amount = amount + 1 WHERE ` + oneEntry(`scope = 'plain'`)}, []string{"budget_counted"}},
	{"a sum of a budget is wrong", []string{`UPDATE budget_scopes SET sums[3] = sums[3] + 1 WHERE scope = 'plain'`}, []string{"budget_counted"}},
	{"a scope is gone", []string{`DELETE FROM budget_scopes WHERE scope = 'plain'`}, []string{"entry_has_scope"}},
	{"a scope has not counted its last entry", []string{`UPDATE budget_scopes SET last_at = last_at - interval '1 minute' WHERE scope = 'plain'`},
		[]string{"entry_has_scope"}},
	{"a settlement takes back more than was reserved", []string{`UPDATE budget_ledger SET amount = -1000 WHERE reserved_at IS NOT NULL`},
		[]string{"budget_counted", "settlement_has_entry"}},
	{"a settlement of an entry that was never made", []string{
		`UPDATE budget_ledger SET recorded_at = recorded_at - interval '60 days' WHERE ` + oneEntry(`scope = 'plain'`),
		`DELETE FROM budget_ledger WHERE scope = 'settled' AND reserved_at IS NULL`},
		[]string{"budget_counted", "settlement_has_entry"}},
}

func TestRunFindsMeteredDamage(t *testing.T) {
	t.Parallel()
	s := &fixture{Fixture: pgtest.NewFixture(t)}
	s.Must(migrations.Up(t.Context(), s.DB, &migrations.Config{Metered: true}))
	commands, err := metered.New(s.DB, metered.Config{})
	s.Must(err)
	budgets := commands.Budgets
	tenant := uuid.New()
	for _, scope := range []string{"plain", "plain", "settled"} {
		reserved, err := budgets.TryReserve(t.Context(), tenant, metered.Charge{Scope: scope, Amount: 5, Limit: 100, Window: time.Hour})
		s.Must(err)
		if scope == "settled" {
			_, err := budgets.Settle(t.Context(), tenant, reserved.Reservation, 3)
			s.Must(err)
		}
	}
	if found := broken(s.try(t, verify.Config{})); len(found) > 0 {
		t.Fatalf("budgets that the service wrote: %v", found)
	}
	for _, d := range meteredDamages {
		if diff := cmp.Diff(d.want, broken(s.try(t, verify.Config{}, d.do...))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", d.name, diff)
		}
	}
}
