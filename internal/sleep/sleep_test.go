package sleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/sleep"
)

func TestFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		over, end := context.WithCancel(t.Context())
		end()
		for _, c := range []struct {
			name string
			ctx  context.Context
			d    time.Duration
			took time.Duration
			want error
		}{
			{"the context ends first", soon, time.Hour, time.Second, context.DeadlineExceeded},
			{"all of d passes", t.Context(), time.Hour, time.Hour, nil},
			{"nothing", t.Context(), 0, 0, nil},
			{"a negative duration", t.Context(), -time.Hour, 0, nil},
			{"the context has ended", over, time.Hour, 0, context.Canceled},
			{"no duration, and the context has ended", over, 0, 0, context.Canceled},
		} {
			began := time.Now()
			if err := sleep.For(c.ctx, c.d); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			if took := time.Since(began); took != c.took {
				t.Errorf("%s: it took %s, want %s", c.name, took, c.took)
			}
		}
	})
}

// A call that takes longer than the interval is not made up for.
func TestEvery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10500*time.Millisecond)
		defer cancel()
		var calls []time.Duration
		began := time.Now()
		sleep.Every(ctx, time.Second, func() {
			calls = append(calls, time.Since(began).Truncate(time.Second))
			if len(calls) == 2 {
				_ = sleep.For(ctx, 6*time.Second)
			}
		})
		if want := []time.Duration{1, 2, 8, 9, 10}; len(calls) != len(want) || calls[0] != time.Second || calls[4] != 10*time.Second {
			t.Errorf("called after %v, want %v seconds", calls, want)
		}
	})
}
