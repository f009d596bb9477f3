package metered

import (
	"testing"

	"pgregory.net/rapid"
)

// A window counts what was charged within it. It may also count what was
// charged just before it, for up to a sixtieth of its length.
func TestRollup(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		type charged struct{ at, amount int64 }
		r := &rollup{seconds: rapid.SampledFrom([]int64{1, 7, 60, 3600, 86_400}).Draw(t, "seconds")}
		window := r.seconds * microsPerSecond
		now := int64(1_800_000_000_000_000)
		var all []charged
		naive := func(since int64) (sum int64) {
			for _, c := range all {
				if c.at > since {
					sum += c.amount
				}
			}
			return sum
		}
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				now += rapid.Int64Range(0, window/2).Draw(t, "by")
			},
			"nearly a window passes": func(t *rapid.T) {
				now += window + rapid.Int64Range(-2, r.width()+2).Draw(t, "by")
			},
			"charge": func(t *rapid.T) {
				c := charged{now, rapid.Int64Range(1, 100).Draw(t, "amount")}
				all = append(all, c)
				if !r.add(c.at, c.amount) {
					t.Fatal("a bucket is full")
				}
				now++ // every moment is used once
			},
			"settle": func(t *rapid.T) {
				if len(all) == 0 {
					return
				}
				c := &all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
				actual := rapid.Int64Range(0, 2*c.amount).Draw(t, "actual")
				r.add(c.at, actual-c.amount)
				c.amount = actual
			},
			"forget": func(*rapid.T) { r.dropExpired(now) },
			"": func(t *rapid.T) {
				sum, least, most := r.sum(now), naive(now-window), naive(now-window-r.width())
				if sum < least || sum > most {
					t.Fatalf("%d counts, want %d to %d", sum, least, most)
				}
				if len(r.current(now)) > bucketsPerWindow+2 {
					t.Fatalf("%d buckets", len(r.current(now)))
				}
				checkWaits(t, r, now)
			},
		})
	})
}

// checkWaits requests an amount just before it fits, and when it fits.
func checkWaits(t *rapid.T, r *rollup, now int64) {
	amount, limit := rapid.Int64Range(1, 300).Draw(t, "amount"), rapid.Int64Range(0, 300).Draw(t, "limit")
	fits := func(at int64) bool { return amount <= limit-r.sum(at) }
	switch wait := r.wait(now, amount, limit); {
	case wait < 0 && amount <= limit, wait >= 0 && amount > limit:
		t.Fatalf("wait %d for %d of %d", wait, amount, limit)
	case wait >= 0 && (!fits(now+wait) || wait > 0 && fits(now+wait-1)):
		t.Fatalf("it does not fit after %d, or fits earlier", wait)
	}
	if reset := r.reset(now); r.sum(now+reset) != 0 || reset > 0 && r.sum(now+reset-1) == 0 {
		t.Fatalf("the window is not empty after %d, or is empty earlier", reset)
	}
}
