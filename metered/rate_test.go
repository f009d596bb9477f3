package metered

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// memory is one rate, at a moment that stands still unless it is moved.
type memory struct {
	now, fullAt int64
}

// take counts amount if it fits, and says how the rate stands.
func (b *memory) take(amount, limit int64, window time.Duration) (bool, Standing) {
	c := newCounted(Rate{Scope: "s", Amount: amount, Limit: limit, Window: window})
	level := min(max(b.fullAt, b.now), b.now+c.bound)
	let := c.fits(b.now, level)
	if let {
		level += c.cost
	}
	b.fullAt = level // as queueSettle writes it
	return let, c.standing(b.now, level, let)
}

// Of a full rate exactly the limit fits at once; one more has to wait for its share of the window, and fits then.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{time.Second, 7 * time.Second, time.Minute, 61*time.Minute + 1, 24 * time.Hour} {
		for _, limit := range []int64{1, 2, 3, 7, 10, 60, 61, 97, 600, 999, 1000, 4096, 9999, 31_607} {
			if limit*limit > int64(window) {
				continue // too fine for the clock: see TestFineRate
			}
			b := &memory{now: 1_700_000_000_000_000_000}
			for i := range limit {
				if let, s := b.take(1, limit, window); !let || s.Remaining != limit-i-1 || s.Wait != 0 {
					t.Fatalf("%d/%s: number %d: let in %t, %+v", limit, window, i+1, let, s)
				}
			}
			let, s := b.take(1, limit, window)
			unit := window / time.Duration(limit)
			if let || s.Remaining != 0 || s.Wait < unit-time.Duration(limit) || s.Wait > unit+1 || s.Reset < window || s.Reset > window+time.Duration(limit) {
				t.Fatalf("%d/%s: one too many: let in %t, %+v", limit, window, let, s)
			}
			b.now += int64(s.Wait) - 1
			if let, _ := b.take(1, limit, window); let {
				t.Fatalf("%d/%s: it fits a nanosecond before it was said to", limit, window)
			}
			b.now++
			if let, s := b.take(1, limit, window); !let || s.Remaining != 0 {
				t.Fatalf("%d/%s: when it was said to fit: let in %t, %+v", limit, window, let, s)
			}
		}
	}
}

// Where a unit's share of the window is shorter than as many nanoseconds as the limit has units, the last few of the limit
// may not fit at once; more than the limit never does.
func TestFineRate(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{31_608, 99_991, 999_999, 1_000_000, 10_000_000} {
		b, n := &memory{}, int64(0)
		for let := true; let; n++ {
			let, _ = b.take(1, limit, time.Second)
		}
		if n--; n > limit || n < limit-limit/50 {
			t.Errorf("of %d in a second %d fit at once", limit, n)
		}
	}
	for _, limit := range []int64{1, 1e6 + 1, RateLimitMax} { // all of it as one
		if let, s := (&memory{}).take(limit, limit, RateWindowMax); !let || s.Remaining != 0 || s.Reset < RateWindowMax {
			t.Errorf("%d at once: let in %t, %+v", limit, let, s)
		}
	}
}

// Whatever was taken before: what remains fits, one more does not; who waits as long as they are told fits, and not before;
// more than the limit never fits; and after Reset all of it does.
func TestStanding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.Int64Range(int64(time.Second), int64(RateWindowMax)).Draw(t, "window"))
		limit := rapid.Int64Range(1, rapid.SampledFrom([]int64{5, 1000, RateLimitMax}).Draw(t, "limits")).Draw(t, "limit")
		b := &memory{now: rapid.Int64Range(9*int64(RateWindowMax), math.MaxInt64/4).Draw(t, "now")}
		for range rapid.IntRange(0, 8).Draw(t, "taken before") {
			b.take(rapid.Int64Range(1, limit).Draw(t, "amount"), limit, window)
			b.now += rapid.Int64Range(-int64(window), int64(window)/4).Draw(t, "passed") // or the clock is set back
		}
		_, s := b.take(never, limit, window) // only to look
		if s.Remaining < 0 || s.Remaining > limit || s.Wait >= 0 || s.Reset < 0 || s.Reset > window+time.Duration(limit) {
			t.Fatalf("%+v", s)
		}
		if c := *b; s.Remaining > 0 {
			if let, left := c.take(s.Remaining, limit, window); !let || left.Remaining != 0 {
				t.Fatalf("%d remain and don't fit", s.Remaining)
			}
		}
		if s.Remaining < limit {
			let, told := b.take(s.Remaining+1, limit, window)
			if let || told.Wait <= 0 {
				t.Fatalf("%d remain, and one more: let in %t, %+v", s.Remaining, let, told)
			}
			early := memory{b.now + int64(told.Wait) - 1, b.fullAt}
			late := memory{b.now + int64(told.Wait), b.fullAt}
			if let, _ := early.take(s.Remaining+1, limit, window); let {
				t.Fatal("it fits earlier than it was told")
			}
			if let, _ := late.take(s.Remaining+1, limit, window); !let {
				t.Fatalf("it does not fit after %s", told.Wait)
			}
		}
		b.now += int64(max(s.Reset, 0))
		if let, _ := b.take(limit, limit, window); !let {
			t.Fatalf("it is not full after %s", s.Reset)
		}
	})
}

// In any stretch of one window's length less than twice the limit is let through, and over many windows the limit for each.
func TestRateOverTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const limit, window = 50, 10 * time.Second
		b := &memory{now: 1}
		type grant struct{ at, amount int64 }
		var granted []grant
		total := int64(0)
		for range 400 {
			b.now += rapid.Int64Range(0, int64(window)/60).Draw(t, "passed")
			amount := rapid.Int64Range(1, 12).Draw(t, "amount")
			if let, _ := b.take(amount, limit, window); let {
				granted, total = append(granted, grant{b.now, amount}), total+amount
			}
		}
		for i, from := range granted {
			sum := int64(0)
			for _, g := range granted[i:] {
				if g.at <= from.at+int64(window) {
					sum += g.amount
				}
			}
			if sum > 2*limit {
				t.Fatalf("%d within %s", sum, window)
			}
		}
		if most := limit + limit*b.now/int64(window) + 1; total > most {
			t.Fatalf("%d in %s, want %d at most", total, time.Duration(b.now), most)
		}
	})
}

func TestRateRefusesBadInput(t *testing.T) {
	t.Parallel()
	good := Rate{Scope: "s", Amount: 1, Limit: 1, Window: time.Second}
	for i, c := range []struct {
		field  string
		change func(*Rate)
	}{
		{"scope", func(r *Rate) { r.Scope = "" }},
		{"scope", func(r *Rate) { r.Scope = strings.Repeat("s", TextMax+1) }},
		{"amount", func(r *Rate) { r.Amount = 0 }},
		{"amount", func(r *Rate) { r.Amount = RateLimitMax + 1 }},
		{"limit", func(r *Rate) { r.Limit = 0 }},
		{"limit", func(r *Rate) { r.Limit = RateLimitMax + 1 }},
		{"window", func(r *Rate) { r.Window = time.Second - 1 }},
		{"window", func(r *Rate) { r.Window = RateWindowMax + 1 }},
	} {
		bad := good
		c.change(&bad)
		_, err := NewVisit([16]byte{1}, []Rate{good, bad}, nil)
		if invalid, ok := errors.AsType[*InvalidError](err); !ok || invalid.Field != c.field {
			t.Errorf("case %d: %v, want %s refused", i, err, c.field)
		}
	}
	if _, err := NewVisit([16]byte{1}, make([]Rate, RatesMax+1), nil); err == nil || !strings.Contains(err.Error(), fmt.Sprint(RatesMax)) {
		t.Errorf("too many rates: %v", err)
	}
	if _, err := NewTurnstile(make([]Visit, GroupMax+1)); err == nil {
		t.Error("a group that is too large was taken")
	}
}
