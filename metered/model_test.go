package metered_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/metered"
)

// modelEntry is an amount of the model, and its time.
type modelEntry struct {
	reservation metered.Reservation
	amount      int64
	settled     bool
}

// model is the ledger in its simplest form: all entries of each scope, summed
// for each decision.
type model map[string][]*modelEntry

func (m model) sum(scope string, since time.Time) (sum int64) {
	for _, e := range m[scope] {
		if e.reservation.ReservedAt.After(since) {
			sum += e.amount
		}
	}
	return sum
}

// check compares a decision made between two moments with the model. A granted
// charge must fit in the window. A refused charge must not fit in a window that
// is a sixtieth longer.
func (m model) check(t *rapid.T, c metered.Charge, granted bool, from, to time.Time) {
	if sum := m.sum(c.Scope, to.Add(-c.Window)); granted && sum+c.Amount > c.Limit {
		t.Fatalf("%+v was granted on top of %d", c, sum)
	}
	if sum := m.sum(c.Scope, from.Add(-c.Window-c.Window/60-time.Microsecond)); !granted && sum+c.Amount <= c.Limit {
		t.Fatalf("%+v was refused on top of %d", c, sum)
	}
}

// drawStep draws a multiple of the buckets of all windows.
func drawStep(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * 2 * time.Minute
}

// move makes that much time pass by the database's clock.
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

// clock returns the scope's clock when the database's clock is at.
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

// Random reservations, single or several per transaction, settlements, passing
// time and clocks that are set back match the model, on many scopes and
// windows.
func TestLedgerModel(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	windows := []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 6 * time.Minute, 2 * time.Hour}
	rapid.Check(t, pgtest.Fewer(func(t *rapid.T) {
		b.exec(`TRUNCATE budget_ledger, budget_scopes`)
		m := model{}
		drawCharge := func(t *rapid.T) metered.Charge {
			return charge(
				fmt.Sprint("scope-", rapid.IntRange(0, 3).Draw(t, "scope")),
				rapid.Int64Range(1, 40).Draw(t, "amount"), rapid.Int64Range(0, 200).Draw(t, "limit"),
				rapid.SampledFrom(windows).Draw(t, "window"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"transaction": func(t *rapid.T) {
				var charges []metered.Charge
				for range rapid.IntRange(1, 6).Draw(t, "members") {
					charges = append(charges, drawCharge(t))
				}
				budgets := make([]metered.Budget, len(charges))
				from := b.now()
				b.must(b.inTx(func(tx pgx.Tx) (err error) {
					for i, c := range charges {
						budgets[i], err = b.budgets.TryReserveTx(b.t.Context(), tx, b.tenant, c)
						if err != nil && !errors.Is(err, metered.ErrOverBudget) {
							return err
						}
					}
					return nil
				}))
				to := b.now()
				for i, c := range charges {
					m.check(t, c, reserved(budgets[i]), b.clock(c.Scope, from), b.clock(c.Scope, to))
					if r := budgets[i].Reservation; reserved(budgets[i]) {
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
	}))
}
