package metered_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/metered"
)

// A thousand reservations at once on a scope that was never charged before, with room for 137. None of them fails, also
// where transactions are stricter by default.
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
			case err != nil || !budget.Reserved:
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
		t.Errorf("the ledger says %d, want %d", n, 3*room)
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
	first := b.reserve(charge("s", 60, 100, time.Minute))
	if !first.Reserved || first.Remaining != 40 || first.Wait != 0 || first.Reset < time.Minute-time.Second || first.Reset > time.Minute+time.Second {
		t.Errorf("the first: %+v", first)
	}
	if first.Reservation.Scope != "s" || first.Reservation.Amount != 60 || first.Reservation.ReservedAt.IsZero() {
		t.Errorf("its reservation: %+v", first.Reservation)
	}
	second := b.reserve(charge("s", 41, 100, time.Minute))
	if second.Reserved || second.Remaining != 40 || second.Wait < 50*time.Second || second.Wait > first.Reset {
		t.Errorf("one that must wait: %+v", second)
	}
	if third := b.reserve(charge("s", 101, 100, time.Minute)); third.Reserved || third.Wait >= 0 {
		t.Errorf("one that never fits: %+v", third)
	}
	if fourth := b.reserve(charge("s", 40, 100, time.Minute)); !fourth.Reserved || fourth.Remaining != 0 {
		t.Errorf("one that just fits: %+v", fourth)
	}
	if lower := b.reserve(charge("s", 1, 50, time.Minute)); lower.Reserved || lower.Remaining != 0 || lower.Wait <= 0 {
		t.Errorf("under a limit that was lowered: %+v", lower)
	}
	// As if all of it had happened 61 seconds earlier: the window and its sixtieth.
	b.age(61 * time.Second)
	if later := b.reserve(charge("s", 100, 100, time.Minute)); !later.Reserved {
		t.Errorf("when the window has moved on: %+v", later)
	}
}

// age makes everything in the ledger so much older. by is whole buckets of every window in use: whole seconds for
// windows of a minute, whole minutes for windows of an hour.
func (b *bundle) age(by time.Duration) {
	b.t.Helper()
	b.exec(`UPDATE budget_ledger SET recorded_at = recorded_at - $1::interval, reserved_at = reserved_at - $1::interval`, by)
	b.exec(`UPDATE budget_scopes SET last_at = last_at - $1::interval, sums = coalesce((
		SELECT array_agg(CASE n % 3 WHEN 2 THEN u - $2 / (sums[n - 1] * 1000000 / 60) ELSE u END ORDER BY n)
		FROM unnest(sums) WITH ORDINALITY AS u (u, n)), '{}')`, by, by.Microseconds())
}

// A window that was never asked for counts what was reserved under others, and a fifth displaces one of them.
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

// A set is decided in its order, first fit, each by itself.
func TestReserveMany(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	var verdicts []metered.Verdict
	b.must(b.inTx(func(tx pgx.Tx) (err error) {
		verdicts, err = b.budgets.TryReserveManyTx(t.Context(), tx, b.tenant, []metered.Charge{
			charge("a", 6, 10, time.Minute), charge("b", 10, 10, time.Minute), charge("", 1, 10, time.Minute),
			charge("a", 5, 10, time.Minute), charge("a", 4, 10, time.Minute), charge("b", 1, 10, time.Minute),
			charge("none", 1, 0, time.Minute), charge("a", 1, 10, time.Minute+1),
		})
		return err
	}))
	granted, remaining := "", []int64{}
	for _, v := range verdicts {
		granted += map[bool]string{true: "+", false: "-"}[v.Err == nil]
		if len(v.Budgets) > 0 {
			remaining = append(remaining, v.Budgets[0].Remaining)
		}
	}
	if granted != "++--+---" {
		t.Errorf("granted %s", granted)
	}
	if diff := cmp.Diff([]int64{4, 0, 4, 0, 0, 0}, remaining); diff != "" {
		t.Errorf("remaining (-want +got):\n%s", diff)
	}
	if got, want := b.rows(), (rows{Entries: 3, Scopes: 2}); got != want {
		t.Errorf("rows %+v, want %+v", got, want)
	}
}

// A pass has all of its budgets and its token, or nothing; nobody pays for another's refusal.
func TestPassIsWhole(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	one, two := redeem(b.mint()), redeem(b.mint())
	bad := redeem(rubbish)
	pass := func(spend *metered.Redemption, charges ...metered.Charge) metered.Pass {
		return metered.Pass{TenantID: b.tenant, Reserve: charges, Spend: spend}
	}
	tenant, customer := charge("tenant", 1, 3, time.Minute), charge("customer", 1, 1, time.Minute)
	var verdicts []metered.Verdict
	b.must(b.inTx(func(tx pgx.Tx) (err error) {
		verdicts, err = b.gate.PassTx(t.Context(), tx, []metered.Pass{
			pass(&bad, tenant, customer),                                          // costs the budgets nothing
			pass(&one, tenant, charge("x", 2, 1, time.Hour)),                      // leaves its token unspent, and the tenant's budget alone
			pass(&one, tenant, customer),                                          // so both are there for this one
			pass(&two, tenant, customer),                                          // its customer has none left
			pass(&one, tenant),                                                    // used
			pass(&two, tenant),                                                    //
			pass(nil, tenant, charge("t", 1, 9, time.Second)),                     //
			pass(nil, tenant, charge("t", 1, 9, time.Second)),                     // the tenant's budget is spent
			{TenantID: uuid.New(), Reserve: []metered.Charge{tenant}, Spend: nil}, // another tenant's is not
		})
		return err
	}))
	scope := func(i int) string {
		if over, ok := errors.AsType[*metered.OverBudgetError](verdicts[i].Err); ok {
			return over.Scope
		}
		return fmt.Sprint(verdicts[i].Err)
	}
	got := []string{scope(1), scope(3), scope(7)}
	if diff := cmp.Diff([]string{"x", "customer", "tenant"}, got); diff != "" {
		t.Errorf("over budget (-want +got):\n%s", diff)
	}
	errs := []error{verdicts[0].Err, verdicts[2].Err, verdicts[4].Err, verdicts[5].Err, verdicts[6].Err, verdicts[8].Err}
	want := []error{metered.ErrTokenMalformed, nil, metered.ErrTokenUsed, nil, nil, nil}
	if diff := cmp.Diff(want, errs, cmpopts.EquateErrors()); diff != "" {
		t.Errorf("verdicts (-want +got):\n%s", diff)
	}
	if got, want := b.rows(), (rows{Spent: 2, Entries: 6, Scopes: 4}); got != want {
		t.Errorf("rows %+v, want %+v", got, want)
	}
}

// Groups that share scopes, some of them new, in opposite orders don't deadlock and don't over-commit.
func TestGroupsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	const groups, scopes, room = 24, 30, 10
	var granted atomic.Int64
	var running sync.WaitGroup
	for g := range groups {
		running.Go(func() {
			passes := make([]metered.Pass, scopes)
			for i := range passes {
				scope := fmt.Sprint("scope-", (i*(2*g+1)+g)%scopes)
				passes[i] = metered.Pass{TenantID: b.tenant, Reserve: []metered.Charge{charge(scope, 1, room, time.Hour), charge("all", 1, 1000, time.Hour)}}
			}
			err := b.inTx(func(tx pgx.Tx) error {
				verdicts, err := b.gate.PassTx(t.Context(), tx, passes)
				for _, v := range verdicts {
					if v.Err == nil {
						granted.Add(1)
					}
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if granted.Load() != scopes*room {
		t.Errorf("%d were granted, want %d", granted.Load(), scopes*room)
	}
	if n := b.count(`SELECT count(*) FROM (SELECT FROM budget_ledger WHERE scope <> 'all' GROUP BY scope HAVING sum(amount) <> $1)`+` AS wrong`, room); n != 0 {
		t.Errorf("%d scopes granted more or less than %d", n, room)
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
		var invalid *metered.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if got := b.rows(); got != (rows{}) {
		t.Errorf("bad input left %+v", got)
	}
}

// What was counted for a charge that is refused is kept: the next one under that window need not count it again.
func TestRefusalKeepsWhatWasCounted(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.reserve(charge("s", 5, 10, time.Hour))
	windows := func() int { return b.count(`SELECT cardinality(sums) / 3 FROM budget_scopes`) }
	if got := windows(); got != 1 {
		t.Fatalf("the sums of %d windows are kept, want 1", got)
	}
	if got := b.reserve(charge("s", 6, 10, time.Minute)); got.Reserved {
		t.Errorf("%+v", got)
	}
	if got := windows(); got != 2 {
		t.Errorf("the sums of %d windows are kept, want 2", got)
	}
}

// A transaction may charge a scope again that it has made or charged before.
func TestReserveTwiceInOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for range 2 { // a new scope, then a known one
		b.must(b.inTx(func(tx pgx.Tx) error {
			for range 3 {
				got, err := b.budgets.TryReserveTx(t.Context(), tx, b.tenant, charge("s", 1, 100, time.Hour))
				if err != nil || !got.Reserved {
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

// A charge costs the same whatever the ledger holds: it reads no entry.
func TestReserveReadsNoEntries(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.exec(`INSERT INTO budget_ledger (tenant_id, scope, recorded_at, amount)
		SELECT $1, 's', clock_timestamp() - n * interval '10 ms', 1 FROM generate_series(1, 20000) AS n`, b.tenant)
	b.exec(`INSERT INTO budget_scopes (tenant_id, scope, last_at, sums) VALUES ($1, 's', clock_timestamp(), '{}')`, b.tenant)
	if got := b.reserve(charge("s", 1, 30_000, time.Hour)); got.Remaining != 30_000-20_001 {
		t.Errorf("the first time they are counted: %d remain", got.Remaining)
	}
	b.must(b.inTx(func(tx pgx.Tx) error {
		const read = `SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_xact_user_tables WHERE relname = 'budget_ledger'`
		var before, after int // what the backend has not reported yet counts too
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

// One group may ask a scope about more windows than it keeps.
func TestManyWindowsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	for round := range 2 {
		var charges []metered.Charge
		for i := range 9 {
			charges = append(charges, charge("s", 1, 100, time.Duration(i+1)*time.Minute))
		}
		var verdicts []metered.Verdict
		b.must(b.inTx(func(tx pgx.Tx) (err error) {
			verdicts, err = b.budgets.TryReserveManyTx(t.Context(), tx, b.tenant, charges)
			return err
		}))
		for i, v := range verdicts {
			if v.Err != nil || v.Budgets[0].Remaining != int64(99-9*round-i) {
				t.Errorf("round %d, charge %d: %+v", round, i, v)
			}
		}
	}
}

// Windows in which nothing counts take no place from those in which something does.
func TestEmptyWindowsAtOnce(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.reserve(charge("s", 5, 5, 24*time.Hour))
	b.age(2 * 24 * time.Minute) // two buckets of a day
	var charges []metered.Charge
	for i := range 5 {
		charges = append(charges, charge("s", 1, 0, time.Duration(i+1)*time.Minute))
	}
	b.must(b.inTx(func(tx pgx.Tx) error {
		_, err := b.budgets.TryReserveManyTx(t.Context(), tx, b.tenant, charges)
		return err
	}))
	if sum := b.sum("s", 24*time.Hour); sum != 5 {
		t.Errorf("%d counts of the day's 5", sum)
	}
}
