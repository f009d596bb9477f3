package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// memory is one rate, with a clock that the test moves.
type memory struct {
	now, tat int64
}

// take counts amount if it fits, and returns the state of the rate.
func (b *memory) take(amount, limit int64, window time.Duration) (bool, State) {
	c := newCell(Rate{Scope: "s", Amount: amount, Limit: limit, Window: window})
	level := min(max(b.tat, b.now), b.now+c.tolerance)
	counted := c.fits(b.now, level)
	if counted {
		level += c.cost
	}
	b.tat = level // queueSettle writes the same
	return counted, c.state(b.now, level, counted)
}

// A full rate accepts exactly the limit at once. One more must wait for one
// emission interval.
func TestRateLimit(t *testing.T) {
	t.Parallel()
	for _, window := range []time.Duration{time.Second, 7 * time.Second, time.Minute, 61*time.Minute + 1, 24 * time.Hour} {
		for _, limit := range []int64{1, 2, 3, 7, 10, 60, 61, 97, 600, 999, 1000, 4096, 9999, 31_607} {
			if limit*limit > int64(window) {
				continue // the interval is below a nanosecond: see TestFineRate
			}
			b := &memory{now: 1_700_000_000_000_000_000}
			for i := range limit {
				if counted, s := b.take(1, limit, window); !counted || s.Remaining != limit-i-1 || s.Wait != 0 {
					t.Fatalf("%d/%s: number %d: counted %t, %+v", limit, window, i+1, counted, s)
				}
			}
			counted, s := b.take(1, limit, window)
			unit := window / time.Duration(limit)
			if counted || s.Remaining != 0 || s.Wait < unit-time.Duration(limit) || s.Wait > unit+1 || s.Reset < window || s.Reset > window+time.Duration(limit) {
				t.Fatalf("%d/%s: one too many: counted %t, %+v", limit, window, counted, s)
			}
			b.now += int64(s.Wait) - 1
			if counted, _ := b.take(1, limit, window); counted {
				t.Fatalf("%d/%s: it fits a nanosecond before the returned wait is over", limit, window)
			}
			b.now++
			if counted, s := b.take(1, limit, window); !counted || s.Remaining != 0 {
				t.Fatalf("%d/%s: when the returned wait is over: counted %t, %+v", limit, window, counted, s)
			}
		}
	}
}

// If the emission interval has fewer nanoseconds than the limit has units, the
// last few of the limit may not fit at once. More than the limit never fits.
func TestFineRate(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{31_608, 99_991, 999_999, 1_000_000, 10_000_000} {
		b, n := &memory{}, int64(0)
		for counted := true; counted; n++ {
			counted, _ = b.take(1, limit, time.Second)
		}
		if n--; n > limit || n < limit-limit/50 {
			t.Errorf("of %d in a second %d fit at once", limit, n)
		}
	}
	for _, limit := range []int64{1, 1e6 + 1, RateLimitMax} { // as one item
		if counted, s := (&memory{}).take(limit, limit, RateWindowMax); !counted || s.Remaining != 0 || s.Reset < RateWindowMax {
			t.Errorf("%d at once: counted %t, %+v", limit, counted, s)
		}
	}
}

// After any history, what remains fits and one more does not. An item fits
// after its Wait and not before. More than the limit never fits, and after
// Reset the whole limit fits.
func TestState(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		window := time.Duration(rapid.Int64Range(int64(time.Second), int64(RateWindowMax)).Draw(t, "window"))
		limit := rapid.Int64Range(1, rapid.SampledFrom([]int64{5, 1000, RateLimitMax}).Draw(t, "limits")).Draw(t, "limit")
		b := &memory{now: rapid.Int64Range(9*int64(RateWindowMax), math.MaxInt64/4).Draw(t, "now")}
		for range rapid.IntRange(0, 8).Draw(t, "taken before") {
			b.take(rapid.Int64Range(1, limit).Draw(t, "amount"), limit, window)
			b.now += rapid.Int64Range(-int64(window), int64(window)/4).Draw(t, "passed") // negative: the clock is set back
		}
		_, s := b.take(never, limit, window) // reads the state only
		if s.Remaining < 0 || s.Remaining > limit || s.Wait >= 0 || s.Reset < 0 || s.Reset > window+time.Duration(limit) {
			t.Fatalf("%+v", s)
		}
		if c := *b; s.Remaining > 0 {
			if counted, left := c.take(s.Remaining, limit, window); !counted || left.Remaining != 0 {
				t.Fatalf("%d remain and don't fit", s.Remaining)
			}
		}
		if s.Remaining < limit {
			counted, after := b.take(s.Remaining+1, limit, window)
			if counted || after.Wait <= 0 {
				t.Fatalf("%d remain, and one more: counted %t, %+v", s.Remaining, counted, after)
			}
			early := memory{b.now + int64(after.Wait) - 1, b.tat}
			late := memory{b.now + int64(after.Wait), b.tat}
			if counted, _ := early.take(s.Remaining+1, limit, window); counted {
				t.Fatal("it fits before its wait is over")
			}
			if counted, _ := late.take(s.Remaining+1, limit, window); !counted {
				t.Fatalf("it does not fit after %s", after.Wait)
			}
		}
		b.now += int64(max(s.Reset, 0))
		if counted, _ := b.take(limit, limit, window); !counted {
			t.Fatalf("it is not full after %s", s.Reset)
		}
	})
}

// In any period of one window's length, less than twice the limit is counted.
// Over many windows it is the limit per window.
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
			if counted, _ := b.take(amount, limit, window); counted {
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
		{"scope", func(r *Rate) { r.Scope = strings.Repeat("s", scopeMax+1) }},
		{"amount", func(r *Rate) { r.Amount = 0 }},
		{"amount", func(r *Rate) { r.Amount = RateLimitMax + 1 }},
		{"limit", func(r *Rate) { r.Limit = 0 }},
		{"limit", func(r *Rate) { r.Limit = RateLimitMax + 1 }},
		{"window", func(r *Rate) { r.Window = time.Second - 1 }},
		{"window", func(r *Rate) { r.Window = RateWindowMax + 1 }},
	} {
		bad := good
		c.change(&bad)
		_, err := NewItem([16]byte{1}, []Rate{good, bad})
		if invalid, ok := errors.AsType[*InvalidError](err); !ok || invalid.Field != c.field {
			t.Errorf("case %d: %v, want %s refused", i, err, c.field)
		}
	}
	_, err := NewItem(uuid.Nil, []Rate{good})
	if invalid, ok := errors.AsType[*InvalidError](err); !ok || invalid.Field != "tenant_id" {
		t.Errorf("the zero tenant: %v, want tenant_id refused", err)
	}
	if _, err := NewItem([16]byte{1}, make([]Rate, ratesMax+1)); err == nil || !strings.Contains(err.Error(), fmt.Sprint(ratesMax)) {
		t.Errorf("too many rates: %v", err)
	}
	if _, err := NewBatch(make([]Item, batchMax+1)); err == nil {
		t.Error("a batch that is too large was accepted")
	}
}
