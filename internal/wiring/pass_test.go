package wiring_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast/holdfast/internal/wiring"
)

// everyMinute is a schedule.
type everyMinute struct{}

func (everyMinute) Next(t time.Time) time.Time { return t.Truncate(time.Minute).Add(time.Minute) }

// runs records when a pass ran, in seconds since the beginning.
type runs struct {
	mu    sync.Mutex
	began time.Time
	at    []int
}

func (r *runs) pass(more, fails int) func(context.Context) (bool, error) {
	return func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.at = append(r.at, int(time.Since(r.began).Seconds()))
		if len(r.at) == fails {
			return true, errors.New("no answer")
		}
		return len(r.at) == more, nil
	}
}

// A pass runs first at once, at once again if it has more work, and else at its
// time, also after it failed.
func TestPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		scheduled, frequent := &runs{began: began}, &runs{began: began}
		p := &wiring.Passes{Log: slog.New(slog.DiscardHandler), Table: []wiring.Pass{
			{Name: "scheduled", RunOnce: scheduled.pass(1, 3), Schedule: everyMinute{}},
			{Name: "frequent", RunOnce: frequent.pass(2, 4), Every: 10 * time.Second},
		}}
		if s := p.Scheduled(); len(s) != 1 || s[0].Name != "scheduled" {
			t.Errorf("scheduled: %+v", s)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
		defer cancel()
		var both sync.WaitGroup
		both.Go(func() { _ = p.Run(ctx) })
		both.Go(func() { _ = p.RunFrequent(ctx, time.Second) })
		both.Wait()
		if want := []int{0, 0, 60, 120}; !slices.Equal(scheduled.at, want) {
			t.Errorf("the pass with a schedule ran at %v, want %v", scheduled.at, want)
		}
		if want := []int{0, 10, 10, 20, 30}; len(frequent.at) < 15 || !slices.Equal(frequent.at[:5], want) {
			t.Errorf("the frequent pass ran at %v, want %v and so on", frequent.at, want)
		}
	})
}

// A pass with a schedule is ended in time, and a pass that fails has no more
// work. A frequent pass is waited for until its grace is over.
func TestPassesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		forever := func(ctx context.Context) (bool, error) { <-ctx.Done(); return true, ctx.Err() }
		p := &wiring.Passes{Log: slog.New(slog.DiscardHandler)}
		began := time.Now()
		more, err := p.Do(t.Context(), wiring.Pass{Name: "long", RunOnce: forever, Schedule: everyMinute{}})
		if more || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != wiring.PassTimeout {
			t.Errorf("%t, %v after %s", more, err, time.Since(began))
		}
		release := make(chan struct{})
		p.Table = []wiring.Pass{{Name: "stuck", Every: time.Second, RunOnce: func(context.Context) (bool, error) { <-release; return false, nil }}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ended := make(chan error, 1)
		began = time.Now()
		running, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		go func() { ended <- p.RunFrequent(running, 2*time.Second) }()
		if err := <-ended; err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		close(release)
		if err := p.RunFrequent(ctx, time.Second); err != nil {
			t.Error(err)
		}
	})
}
