package metered_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/metered"
)

// hourly is a rate of limit a day; what it holds is told in hours, of which none passes while a test runs.
func hourly(scope string, amount, limit int64) metered.Rate {
	return metered.Rate{Scope: scope, Amount: amount, Limit: limit, Window: 24 * time.Hour}
}

// visit is one of the bundle's tenant; token "" for none.
func (b *bundle) visit(token metered.Token, rates ...metered.Rate) metered.Visit {
	b.t.Helper()
	if token.IsZero() {
		return b.visitOf(b.tenant, nil, rates...)
	}
	spend := redeem(token)
	return b.visitOf(b.tenant, &spend, rates...)
}

func (b *bundle) visitOf(tenant uuid.UUID, spend *metered.Redemption, rates ...metered.Rate) metered.Visit {
	b.t.Helper()
	return must(b, func() (metered.Visit, error) { return metered.NewVisit(tenant, rates, spend) })
}

// enterTx has a group pass in a transaction of the caller's.
func (b *bundle) enterTx(tx pgx.Tx, treat func(int) metered.Treatment, visits ...metered.Visit) ([]metered.Entry, error) {
	turnstile, err := metered.NewTurnstile(visits)
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	turnstile.Queue(batch)
	if err := tx.SendBatch(b.t.Context(), batch).Close(); err != nil {
		return nil, err
	}
	return turnstile.PassTx(b.t.Context(), tx, treat)
}

// enter has a group pass in a transaction of its own.
func (b *bundle) enter(treat func(int) metered.Treatment, visits ...metered.Visit) (entries []metered.Entry) {
	b.t.Helper()
	b.must(b.inTx(func(tx pgx.Tx) (err error) {
		entries, err = b.enterTx(tx, treat, visits...)
		return err
	}))
	return entries
}

func guarded(int) metered.Treatment { return metered.Guarded }

func counted(int) metered.Treatment { return metered.Counted }

// guardedAt guards the visits at these places, and counts the others.
func guardedAt(places ...int) func(int) metered.Treatment {
	return func(i int) metered.Treatment {
		if slices.Contains(places, i) {
			return metered.Guarded
		}
		return metered.Counted
	}
}

// errorsOf are the errors of the entries, a rate's by its scope.
func errorsOf(entries []metered.Entry) []string {
	texts := make([]string, len(entries))
	for i, e := range entries {
		if over, ok := errors.AsType[*metered.OverRateError](e.Err); ok {
			texts[i] = "over " + over.Scope
		} else if e.Err != nil {
			texts[i] = e.Err.Error()
		}
	}
	return texts
}

// remaining says what is left of each rate of each entry.
func remaining(entries []metered.Entry) [][]int64 {
	left := make([][]int64, len(entries))
	for i, e := range entries {
		for _, s := range e.Standings {
			left[i] = append(left[i], s.Remaining)
		}
	}
	return left
}

// setRate makes a rate full again after so many hours.
func (b *bundle) setRate(scope string, hours int) {
	b.t.Helper()
	b.exec(`INSERT INTO budget_rates (tenant_id, scope, full_at)
		VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 + $3 * 3600000000000::bigint)
		ON CONFLICT (tenant_id, scope) DO UPDATE SET full_at = excluded.full_at`, b.tenant, scope, hours)
}

// rates says after how many hours each rate of the tenant is full again; those that are full are left out.
func (b *bundle) rates(tenant uuid.UUID) map[string]int {
	b.t.Helper()
	found, err := b.db.Query(b.t.Context(), `SELECT scope, full_at / 1e9 - extract(epoch FROM clock_timestamp()) FROM budget_rates WHERE tenant_id = $1`, tenant)
	b.must(err)
	hours := make(map[string]int)
	var scope string
	var seconds float64
	_, err = pgx.ForEachRow(found, []any{&scope, &seconds}, func() error {
		if h := int(math.Ceil(seconds/3600 - 1e-6)); h > 0 {
			hours[scope] = h
		}
		return nil
	})
	b.must(err)
	return hours
}

func (b *bundle) wantRates(want map[string]int) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.rates(b.tenant)); diff != "" {
		b.t.Errorf("hours until the rates are full (-want +got):\n%s", diff)
	}
}

// unspent are those of the tokens that could be spent still: each is tried, and left as it was.
func (b *bundle) unspent(tokens []metered.Token) (left []int) {
	b.t.Helper()
	err := b.inTx(func(tx pgx.Tx) error {
		for i, token := range tokens {
			if _, err := b.tokens.ConsumeTx(b.t.Context(), tx, b.tenant, redeem(token)); err == nil {
				left = append(left, i)
			} else if !errors.Is(err, metered.ErrTokenUsed) {
				b.t.Errorf("token %d: %v", i, err)
			}
		}
		return pgx.ErrTxClosed
	})
	if !errors.Is(err, pgx.ErrTxClosed) {
		b.t.Fatal(err)
	}
	return left
}

func (b *bundle) mintMany(n int) (tokens []metered.Token) {
	b.t.Helper()
	grants := make([]metered.Grant, n)
	for i := range grants {
		grants[i] = metered.Grant{Purpose: "upload", Subject: "session-1", TTL: time.Hour}
	}
	for _, m := range must(b, func() ([]metered.Minted, error) { return b.tokens.MintMany(b.t.Context(), b.tenant, grants) }) {
		tokens = append(tokens, m.Token)
	}
	return tokens
}

// A group is let in whole: each is counted in its rates, new ones and known ones, and its token is spent.
func TestTurnstile(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.setRate("known", 3)
	tokens := b.mintMany(4)
	var visits []metered.Visit
	for i, token := range tokens[:3] {
		visits = append(visits, b.visit(token, hourly("known", 1, 24), hourly("new", 2, 24), hourly(fmt.Sprint("own-", i), 1, 12)))
	}
	entries := b.enter(guarded, visits...)
	if diff := cmp.Diff([]string{"", "", ""}, errorsOf(entries)); diff != "" {
		t.Errorf("let in (-want +got):\n%s", diff)
	}
	want := [][]metered.Standing{
		{{20, 0, 4 * time.Hour}, {22, 0, 2 * time.Hour}, {11, 0, 2 * time.Hour}},
		{{19, 0, 5 * time.Hour}, {20, 0, 4 * time.Hour}, {11, 0, 2 * time.Hour}},
		{{18, 0, 6 * time.Hour}, {18, 0, 6 * time.Hour}, {11, 0, 2 * time.Hour}},
	}
	for i, e := range entries {
		if diff := cmp.Diff(want[i], e.Standings, aboutAnHour); diff != "" {
			t.Errorf("standings of %d (-want +got):\n%s", i, diff)
		}
	}
	b.wantRates(map[string]int{"known": 6, "new": 6, "own-0": 2, "own-1": 2, "own-2": 2})
	if left := b.unspent(tokens); !cmp.Equal(left, []int{3}) {
		t.Errorf("unspent: %v", left)
	}
	if n := b.count(`SELECT count(*) FROM expiring_tokens WHERE consumed_at >= created_at AND consumed_at <= clock_timestamp()`); n != 3 {
		t.Errorf("%d tokens were spent when they were", n)
	}
	if entries := b.enter(guarded); len(entries) != 0 {
		t.Errorf("an empty group: %+v", entries)
	}
}

// aboutAnHour compares durations that are told in hours: less than half of one passes while a test runs.
var aboutAnHour = cmp.Comparer(func(a, b time.Duration) bool {
	return (a > 0) == (b > 0) && (a < 0) == (b < 0) && (a-b).Abs() < 30*time.Minute
})

// First come, first served: the visits are decided in their order, one that is refused takes no room from those behind it,
// and each says how its rates stand right after.
func TestTurnstileOrder(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.setRate("shop", 14)
	entries := b.enter(guardedAt(5, 13),
		b.visit(noToken, hourly("shop", 4, 24), hourly("ann", 1, 2)),                 // 18 of 24
		b.visit(noToken, hourly("shop", 7, 24), hourly("ann", 1, 2)),                 // too large for what is left of the shop's
		b.visit(noToken, hourly("shop", 1, 24), hourly("ann", 3, 2)),                 // never
		b.visit(noToken, hourly("shop", 5, 24), hourly("ann", 1, 2)),                 // the last of ann's
		b.visit(noToken, hourly("shop", 1, 24), hourly("ann", 1, 2)),                 // none of ann's is left
		b.visit(rubbish, hourly("shop", 1, 24)),                                      // refused for its token
		b.visit(noToken, hourly("bob", 1, 1), hourly("shop", 1, 24)),                 // the last of the shop's
		b.visit(noToken, hourly("cem", 1, 1), hourly("shop", 1, 24)),                 // takes none of cem's
		b.visit(noToken, hourly("dee", 1, 2), hourly("dee", 2, 2)),                   // one scope twice, too much together
		b.visit(noToken, hourly("dee", 1, 2), hourly("dee", 1, 2)),                   // and not too much
		b.visitOf(uuid.New(), nil, hourly("shop", 24, 24)),                           // another tenant's is full
		b.visitOf(uuid.New(), nil),                                                   // asks for nothing
		b.visit(noToken, hourly("ann", 1, 2)), b.visit(rubbish, hourly("ann", 1, 2)), // a token's refusal goes before
	)
	const malformed = "metered: the token is not valid: malformed"
	if diff := cmp.Diff([]string{"", "over shop", "over ann", "", "over ann", malformed, "", "over shop", "over dee", "", "", "", "over ann", malformed}, errorsOf(entries)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	want := [][]int64{{6, 1}, {6, 1}, {6, 1}, {1, 0}, {1, 0}, {1}, {0, 0}, {1, 0}, {2, 2}, {0, 0}, {0}, nil, {0}, {0}}
	if diff := cmp.Diff(want, remaining(entries)); diff != "" {
		t.Errorf("remaining (-want +got):\n%s", diff)
	}
	for i, want := range map[int]time.Duration{1: time.Hour, 4: 12 * time.Hour, 7: time.Hour, 12: 12 * time.Hour} {
		over, _ := errors.AsType[*metered.OverRateError](entries[i].Err)
		if over == nil || !cmp.Equal(over.Wait, want, aboutAnHour) || over.Amount > over.Limit || over.Window != 24*time.Hour {
			t.Errorf("visit %d: %+v, want to wait for %s", i, over, want)
		}
	}
	if over, _ := errors.AsType[*metered.OverRateError](entries[2].Err); over == nil || over.Wait >= 0 {
		t.Errorf("more than the limit: %+v, want to wait for ever", over)
	}
	b.wantRates(map[string]int{"shop": 24, "ann": 24, "bob": 24, "dee": 24})
}

// Two limits on one scope share its moment: each says how far ahead it may lie.
func TestTurnstileTwoLimits(t *testing.T) {
	t.Parallel()
	for _, known := range []int{0, 2} { // hours that the scope is ahead already
		b := newBundle(t)
		if known > 0 {
			b.setRate("s", known)
		}
		narrow := metered.Rate{Scope: "s", Amount: 1, Limit: 6, Window: 6 * time.Hour}
		entries := b.enter(counted,
			b.visit(noToken, hourly("s", 3-int64(known), 24)),                            // at 3 h
			b.visit(noToken, narrow), b.visit(noToken, narrow), b.visit(noToken, narrow), // at 6 h
			b.visit(noToken, narrow),                                       // refused
			b.visit(noToken, hourly("s", 16, 24)),                          // at 22 h
			b.visit(noToken, narrow), b.visit(noToken, hourly("s", 3, 24)), // refused
			b.visit(noToken, hourly("s", 1, 12)), // at 24 h
		)
		if diff := cmp.Diff([]string{"", "", "", "", "over s", "", "over s", "over s", ""}, errorsOf(entries)); diff != "" {
			t.Errorf("refused (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([][]int64{{21}, {2}, {1}, {0}, {0}, {2}, {0}, {2}, {0}}, remaining(entries)); diff != "" {
			t.Errorf("remaining (-want +got):\n%s", diff)
		}
		if wait := entries[6].Standings[0].Wait; !cmp.Equal(wait, 17*time.Hour, aboutAnHour) {
			t.Errorf("the narrow one waits for %s", wait)
		}
		b.wantRates(map[string]int{"s": 24})
	}
}

// Rolled back, nothing was counted and nothing spent, and no row stays.
func TestTurnstileRolledBack(t *testing.T) {
	t.Parallel()
	b := newBundle(t)
	b.setRate("known", 3)
	tokens := b.mintMany(2)
	failed := errors.New("failed")
	for _, treat := range []func(int) metered.Treatment{guarded, func(i int) metered.Treatment { return metered.Treatment(i) }} {
		err := b.inTx(func(tx pgx.Tx) error {
			_, err := b.enterTx(tx, treat,
				b.visit(tokens[0], hourly("known", 1, 24), hourly("new", 1, 24)), b.visit(tokens[1], hourly("known", 30, 24)), b.visit(tokens[1], hourly("new", 1, 24)))
			b.must(err)
			return failed
		})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		b.wantRates(map[string]int{"known": 3})
		if n := b.count(`SELECT count(*) FROM budget_rates`); n != 1 {
			t.Errorf("%d rates have rows", n)
		}
		if left := b.unspent(tokens); len(left) != 2 {
			t.Errorf("unspent: %v", left)
		}
	}
}
