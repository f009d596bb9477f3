package metered_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/metered"
)

// There are a thousand concurrent reservations on a new scope whose limit
// allows 137. None of them fails, even if the default isolation level is
// stricter.
func TestNeverOverCommits(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			neverOverCommit(t, level)
		})
	}
}

func neverOverCommit(t *testing.T, level pgx.TxIsoLevel) {
	config := newBundle(t).db.Config()
	config.ConnConfig.RuntimeParams["default_transaction_isolation"] = string(level)
	db, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	b := bundleOn(t, db)
	const room = 137
	var granted, refused atomic.Int64
	var callers sync.WaitGroup
	for range 1000 {
		callers.Go(func() {
			switch budget, err := b.budgets.TryReserve(t.Context(), b.tenant, charge("global:hourly", 3, 3*room+2, time.Hour)); {
			case errors.Is(err, metered.ErrOverBudget):
				refused.Add(1)
			case err != nil || !reserved(budget):
				t.Error(budget, err)
			default:
				granted.Add(1)
			}
		})
	}
	callers.Wait()
	if granted.Load() != room || refused.Load() != 1000-room {
		t.Errorf("%d were granted and %d refused, want %d and %d", granted.Load(), refused.Load(), room, 1000-room)
	}
	if n := b.count(`SELECT sum(amount) FROM budget_ledger WHERE scope = 'global:hourly'`); n != 3*room {
		t.Errorf("the ledger has %d, want %d", n, 3*room)
	}
	sum, err := b.budgets.WindowedSum(t.Context(), b.tenant, "global:hourly", time.Hour)
	b.must(err)
	if sum != 3*room {
		t.Errorf("the sum is %d, want %d", sum, 3*room)
	}
}

func TestRemainingAndWait(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	first := b.reserve(charge("s", 60, 100, time.Hour))
	if !reserved(first) || first.Remaining != 40 || first.Wait != 0 || first.Reset < 59*time.Minute || first.Reset > 61*time.Minute {
		t.Errorf("the first: %+v", first)
	}
	if first.Reservation.Scope != "s" || first.Reservation.Amount != 60 || first.Reservation.ReservedAt.IsZero() {
		t.Errorf("its reservation: %+v", first.Reservation)
	}
	second := b.reserve(charge("s", 41, 100, time.Hour))
	if reserved(second) || second.Remaining != 40 || second.Wait < 30*time.Minute || second.Wait > first.Reset {
		t.Errorf("a charge that must wait: %+v", second)
	}
	if third := b.reserve(charge("s", 101, 100, time.Hour)); reserved(third) || third.Wait >= 0 {
		t.Errorf("a charge that never fits: %+v", third)
	}
	if fourth := b.reserve(charge("s", 40, 100, time.Hour)); !reserved(fourth) || fourth.Remaining != 0 {
		t.Errorf("a charge that just fits: %+v", fourth)
	}
	if lower := b.reserve(charge("s", 1, 50, time.Hour)); reserved(lower) || lower.Remaining != 0 || lower.Wait <= 0 {
		t.Errorf("under a limit that was lowered: %+v", lower)
	}
	// Moves all entries 61 minutes back: the window and its sixtieth.
	b.age(61 * time.Minute)
	if later := b.reserve(charge("s", 100, 100, time.Hour)); !reserved(later) {
		t.Errorf("when the window has moved on: %+v", later)
	}
}

// age makes the entries of the ledger that much older. by must be a multiple of
// the bucket of every window in use: whole seconds for windows of a minute,
// whole minutes for windows of an hour.
func (b *bundle) age(by time.Duration) {
	b.t.Helper()
	b.exec(`UPDATE budget_ledger SET recorded_at = recorded_at - $1::interval, reserved_at = reserved_at - $1::interval`, by)
	b.exec(`UPDATE budget_scopes SET last_at = last_at - $1::interval, sums = coalesce((
		SELECT array_agg(CASE n % 3 WHEN 2 THEN u - $2 / (sums[n - 1] * 1000000 / 60) ELSE u END ORDER BY n)
		FROM unnest(sums) WITH ORDINALITY AS u (u, n)), '{}')`, by, by.Microseconds())
}

// A new window counts what was reserved with other windows. A fifth window
// displaces one of them.
func TestWindowsOfOneScope(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for i, window := range []time.Duration{time.Minute, time.Hour, 2 * time.Minute, 24 * time.Hour, 5 * time.Minute, time.Minute, 90 * time.Second} {
		if got := b.reserve(charge("s", 1, 100, window)); got.Remaining != int64(99-i) {
			t.Errorf("reservation %d, window %s: %d remaining, want %d", i, window, got.Remaining, 99-i)
		}
		sum, err := b.budgets.WindowedSum(t.Context(), b.tenant, "s", 20*time.Minute)
		b.must(err)
		if sum != int64(i+1) {
			t.Errorf("sum %d after %d reservations", sum, i+1)
		}
	}
	if n := b.count(`SELECT count(DISTINCT sums[n]) FROM budget_scopes, generate_series(1, cardinality(sums), 3) AS n`); n != 4 {
		t.Errorf("the scope keeps %d windows, want 4", n)
	}
}

// charging returns a command without a token, with a new key, that charges the
// scopes.
func (b *bundle) charging(charges ...metered.Charge) metered.Command {
	job := b.transcode("")
	return metered.Command{Reserve: charges, Start: job}
}

// A command takes all of its budgets and its token, or none.
func TestCommandIsWhole(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	one, two, bad := redeem(b.mint()), redeem(b.mint()), redeem(rubbish)
	run := func(spend *metered.Redemption, charges ...metered.Charge) string {
		command := b.charging(charges...)
		command.Spend = spend
		_, err := b.commands.Run(t.Context(), command)
		if over, ok := errors.AsType[*metered.Error](err); ok && over.Kind == metered.ErrOverBudget {
			return "over " + over.Charge.Scope
		}
		for _, refused := range []error{tokens.ErrMalformed, tokens.ErrUsed} {
			if errors.Is(err, refused) {
				return refused.Error()
			}
		}
		b.must(err)
		return ""
	}
	tenant, customer := charge("tenant", 1, 3, time.Minute), charge("customer", 1, 1, time.Minute)
	got := []string{
		run(&bad, tenant, customer),                                              // charges no budget
		run(&one, tenant, charge("x", 2, 1, time.Hour)),                          // does not redeem its token or charge the tenant's budget
		run(&one, tenant, customer),                                              // so both are available to this one
		run(&two, tenant, customer),                                              // its customer has none left
		run(&one, tenant),                                                        // used
		run(&two, tenant),                                                        //
		run(nil, tenant, charge("t", 1, 9, time.Second)),                         //
		run(nil, tenant, charge("t", 1, 9, time.Second)),                         // the tenant's budget is spent
		run(nil, charge("s", 2, 3, time.Minute), charge("s", 2, 3, time.Minute)), // the same scope twice, too much together
		run(nil, charge("s", 2, 4, time.Minute), charge("s", 2, 4, time.Minute)), // the same scope twice, not too much
	}
	malformed, used := tokens.ErrMalformed.Error(), tokens.ErrUsed.Error()
	if diff := cmp.Diff([]string{malformed, "over x", "", "over customer", used, "", "", "over tenant", "over s", ""}, got); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if got, want := b.rows(), (rows{Spent: 2, Entries: 7, Scopes: 4, Keys: 4, Jobs: 4, Events: 4}); got != want {
		t.Errorf("rows %+v, want %+v", got, want)
	}
}

// Commands that charge the same scopes, some of them new, in different orders
// don't deadlock and don't exceed a limit.
func TestCommandsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const callers, each, scopes, room = 16, 10, 7, 10
	var granted, refused atomic.Int64
	var running sync.WaitGroup
	for c := range callers {
		running.Go(func() {
			for n := range each {
				var charges []metered.Charge
				for i := range scopes - 1 {
					scope := fmt.Sprint("scope-", ((i+n)*(c%(scopes-1)+1)+c)%scopes)
					charges = append(charges, charge(scope, 1, room, time.Hour))
				}
				charges = append(charges, charge("all", 1, 1000, time.Hour))
				switch _, err := b.commands.Run(t.Context(), b.charging(charges...)); {
				case err == nil:
					granted.Add(1)
				case errors.Is(err, metered.ErrOverBudget):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if granted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d were granted and %d refused", granted.Load(), refused.Load())
	}
	if n := b.count(`SELECT coalesce(sum(amount), 0) FROM budget_ledger WHERE scope = 'all'`); n != int(granted.Load()) {
		t.Errorf("%d were granted, and the ledger has %d", granted.Load(), n)
	}
	if n := b.count(`SELECT coalesce(sum(amount), 0) FROM budget_ledger WHERE scope <> 'all'`); n != (scopes-1)*int(granted.Load()) {
		t.Errorf("%d commands charged %d", granted.Load(), n)
	}
	if n := b.count(`SELECT count(*) FROM (SELECT FROM budget_ledger WHERE scope <> 'all' GROUP BY scope HAVING sum(amount) > $1) AS wrong`, room); n != 0 {
		t.Errorf("%d scopes granted more than %d", n, room)
	}
}

func TestReserveRefusesBadInput(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for field, c := range map[string]metered.Charge{
		"scope":  charge("a\nb", 1, 1, time.Second),
		"amount": charge("a", metered.AmountMax+1, 1, time.Second),
		"limit":  charge("a", 1, -1, time.Second),
		"window": charge("a", 1, 1, 25*time.Hour),
	} {
		_, err := b.budgets.TryReserve(t.Context(), b.tenant, c)
		var invalid *metered.Error
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if got := b.rows(); got != (rows{}) {
		t.Errorf("invalid input left %+v", got)
	}
}

// The sum that a refused charge has counted is kept: the next charge with that
// window need not count it again.
func TestRefusalKeepsWhatWasCounted(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.reserve(charge("s", 5, 10, time.Hour))
	windows := func() int { return b.count(`SELECT cardinality(sums) / 3 FROM budget_scopes`) }
	if got := windows(); got != 1 {
		t.Fatalf("the sums of %d windows are kept, want 1", got)
	}
	if got := b.reserve(charge("s", 6, 10, time.Minute)); reserved(got) {
		t.Errorf("%+v", got)
	}
	if got := windows(); got != 2 {
		t.Errorf("the sums of %d windows are kept, want 2", got)
	}
}

// A transaction may charge a scope again that it has inserted or charged
// before.
func TestReserveTwiceInOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for range 2 { // a new scope, then the same scope
		b.must(b.inTx(func(tx pgx.Tx) error {
			for range 3 {
				got, err := b.budgets.TryReserveTx(t.Context(), tx, b.tenant, charge("s", 1, 100, time.Hour))
				if err != nil || !reserved(got) {
					t.Errorf("%+v, %v", got, err)
				}
			}
			return nil
		}))
	}
	if sum := b.sum("s", time.Hour); sum != 6 {
		t.Errorf("the sum is %d, want 6", sum)
	}
	if got := b.rows(); got != (rows{Entries: 6, Scopes: 1}) {
		t.Errorf("rows %+v", got)
	}
}

// A charge reads no entries of the ledger, so its cost does not depend on their
// number.
func TestReserveReadsNoEntries(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.exec(`INSERT INTO budget_ledger (tenant_id, scope, recorded_at, amount)
		SELECT $1, 's', clock_timestamp() - n * interval '10 ms', 1 FROM generate_series(1, 20000) AS n`, b.tenant)
	b.exec(`INSERT INTO budget_scopes (tenant_id, scope, last_at, sums) VALUES ($1, 's', clock_timestamp(), '{}')`, b.tenant)
	if got := b.reserve(charge("s", 1, 30_000, time.Hour)); got.Remaining != 30_000-20_001 {
		t.Errorf("the first charge counts them: %d remain", got.Remaining)
	}
	b.must(b.inTx(func(tx pgx.Tx) error {
		const read = `SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_xact_user_tables WHERE relname = 'budget_ledger'`
		var before, after int // including reads that the backend has not reported yet
		if err := tx.QueryRow(t.Context(), read).Scan(&before); err != nil {
			return err
		}
		for range 20 {
			if _, err := b.budgets.TryReserveTx(t.Context(), tx, b.tenant, charge("s", 1, 30_000, time.Hour)); err != nil {
				return err
			}
		}
		if err := tx.QueryRow(t.Context(), read).Scan(&after); err != nil {
			return err
		}
		if after != before {
			t.Errorf("20 charges read %d entries", after-before)
		}
		return nil
	}))
}

// One command may use more windows of a scope than the scope keeps.
func TestManyWindowsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for round := range 2 {
		var charges []metered.Charge
		for i := range metered.ChargesMax {
			charges = append(charges, charge("s", 1, 100, time.Duration(i+1)*time.Minute))
		}
		if _, err := b.commands.Run(t.Context(), b.charging(charges...)); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		for i := range metered.ChargesMax {
			if sum, want := b.sum("s", time.Duration(i+1)*time.Minute), int64(metered.ChargesMax*(round+1)); sum != want {
				t.Errorf("round %d, window %d: the sum is %d, want %d", round, i, sum, want)
			}
		}
	}
}

// Windows in which no entry counts do not displace windows in which one does.
func TestEmptyWindowsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.reserve(charge("s", 5, 5, 24*time.Hour))
	b.age(2 * 24 * time.Minute) // two buckets of a day
	var charges []metered.Charge
	for i := range 5 {
		charges = append(charges, charge("s", 1, 0, time.Duration(i+1)*time.Minute))
	}
	if _, err := b.commands.Run(t.Context(), b.charging(charges...)); !errors.Is(err, metered.ErrOverBudget) {
		t.Errorf("%v, want a refusal", err)
	}
	if sum := b.sum("s", 24*time.Hour); sum != 5 {
		t.Errorf("%d counts of the day's 5", sum)
	}
}
