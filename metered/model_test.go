package metered_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/metered"
)

// modelEntry is an amount as the naive model keeps it: what it came to, and when.
type modelEntry struct {
	reservation metered.Reservation
	amount      int64
	settled     bool
}

// model is the ledger as anybody would write it: all entries of each scope, added up anew each time.
type model map[string][]*modelEntry

func (m model) sum(scope string, since time.Time) (sum int64) {
	for _, e := range m[scope] {
		if e.reservation.ReservedAt.After(since) {
			sum += e.amount
		}
	}
	return sum
}

// check holds a decision made between two moments against the model: what was granted fitted in the window, and what was
// refused did not fit in one a sixtieth longer. before says what else the same pass had reserved in the scope.
func (m model) check(t *rapid.T, c metered.Charge, granted bool, from, to time.Time) {
	if sum := m.sum(c.Scope, to.Add(-c.Window)); granted && sum+c.Amount > c.Limit {
		t.Fatalf("%+v was granted on top of %d", c, sum)
	}
	if sum := m.sum(c.Scope, from.Add(-c.Window-c.Window/60-time.Microsecond)); !granted && sum+c.Amount <= c.Limit {
		t.Fatalf("%+v was refused on top of %d", c, sum)
	}
}

// drawStep is whole buckets of all windows.
func drawStep(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * 2 * time.Minute
}

// move has everything so much later by the database's clock.
func (m model) move(b *bundle, by time.Duration) {
	b.age(-by)
	for _, entries := range m {
		for _, e := range entries {
			e.reservation.ReservedAt = e.reservation.ReservedAt.Add(by)
		}
	}
}

func (b *bundle) now() (at time.Time) {
	b.t.Helper()
	b.must(b.db.QueryRow(b.t.Context(), `SELECT clock_timestamp()`).Scan(&at))
	return at
}

// clock is the scope's when the database's is at.
func (b *bundle) clock(scope string, at time.Time) time.Time {
	b.t.Helper()
	var lastAt time.Time
	var ahead int64
	err := b.db.QueryRow(b.t.Context(), `SELECT last_at, ahead FROM budget_scopes WHERE scope = $1`, scope).Scan(&lastAt, &ahead)
	if errors.Is(err, pgx.ErrNoRows) {
		return at
	}
	b.must(err)
	at = at.Add(time.Duration(ahead) * time.Microsecond)
	if lastAt.Sub(at) > time.Second {
		return lastAt
	}
	return at
}

// Random reservations, groups, settlements, passing time and clocks that are set back, on many scopes and windows, against
// the naive model.
func TestLedgerModel(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	windows := []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Minute, 2 * time.Hour}
	rapid.Check(t, func(t *rapid.T) {
		b.exec(`TRUNCATE budget_ledger, budget_scopes`)
		m := model{}
		drawCharge := func(t *rapid.T) metered.Charge {
			return charge(
				fmt.Sprint("scope-", rapid.IntRange(0, 3).Draw(t, "scope")),
				rapid.Int64Range(1, 40).Draw(t, "amount"), rapid.Int64Range(0, 200).Draw(t, "limit"),
				rapid.SampledFrom(windows).Draw(t, "window"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"group": func(t *rapid.T) {
				var charges []metered.Charge
				for range rapid.IntRange(1, 6).Draw(t, "members") {
					charges = append(charges, drawCharge(t))
				}
				var verdicts []metered.Verdict
				from := b.now()
				b.must(b.inTx(func(tx pgx.Tx) (err error) {
					verdicts, err = b.budgets.TryReserveManyTx(b.t.Context(), tx, b.tenant, charges)
					return err
				}))
				to := b.now()
				for i, v := range verdicts { // as if one came after the other
					scope := charges[i].Scope
					m.check(t, charges[i], v.Err == nil, b.clock(scope, from), b.clock(scope, to))
					if v.Err == nil {
						r := v.Budgets[0].Reservation
						m[r.Scope] = append(m[r.Scope], &modelEntry{reservation: r, amount: r.Amount})
					}
				}
			},
			"settle": func(t *rapid.T) {
				scope := fmt.Sprint("scope-", rapid.IntRange(0, 3).Draw(t, "scope"))
				if len(m[scope]) == 0 {
					return
				}
				e := m[scope][rapid.IntRange(0, len(m[scope])-1).Draw(t, "which")]
				actual := rapid.Int64Range(0, 60).Draw(t, "actual")
				_, err := b.budgets.Settle(b.t.Context(), b.tenant, e.reservation, actual)
				if (err == nil) == e.settled {
					t.Fatalf("settle %+v: %v", e, err)
				}
				if err == nil {
					e.amount, e.settled = actual, true
				}
			},
			"time passes":           func(t *rapid.T) { m.move(b, -drawStep(t)) },
			"the clock is set back": func(t *rapid.T) { m.move(b, drawStep(t)) },
			"sum": func(t *rapid.T) {
				c := drawCharge(t)
				from := b.now()
				sum := b.sum(c.Scope, c.Window)
				least, most := m.sum(c.Scope, b.clock(c.Scope, b.now()).Add(-c.Window)), m.sum(c.Scope, b.clock(c.Scope, from).Add(-c.Window-c.Window/60-time.Microsecond))
				if sum < least || sum > most {
					t.Fatalf("the sum of %s in %s is %d, want %d to %d", c.Scope, c.Window, sum, least, most)
				}
			},
		})
	})
}
