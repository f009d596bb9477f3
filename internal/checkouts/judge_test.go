package checkouts

import (
	"testing"
	"time"
)

// The table of docs/checkout.md.
func TestJudge(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		counts
		want finding
	}{
		"all are held":                   {counts{3, 3, 0}, heldByUs},
		"one of one is held":             {counts{1, 1, 0}, heldByUs},
		"all are committed":              {counts{3, 0, 3}, committedByUs},
		"some are committed":             {counts{3, 2, 1}, heldByUs},
		"one is lost":                    {counts{3, 2, 0}, lost},
		"all are lost":                   {counts{3, 0, 0}, lost},
		"one is lost, one is committed":  {counts{3, 1, 1}, lost},
		"one is lost, two are committed": {counts{3, 0, 2}, lost},
		"more than recorded":             {counts{3, 4, 0}, lost},
	} {
		if got := c.judge(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	c, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for attempt, want := range map[int32]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1 << 30: time.Minute} {
		if got := c.backoff(attempt); got != want {
			t.Errorf("after attempt %d: %s, want %s", attempt, got, want)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Config{
		"ttl":             {TTL: 25 * time.Hour},
		"short ttl":       {TTL: time.Millisecond},
		"attempt_timeout": {AttemptTimeout: -1},
		"backoff_min":     {BackoffMin: -1},
		"backoff_max":     {BackoffMin: time.Minute, BackoffMax: time.Second},
		"concurrency":     {Concurrency: -1},
		"pass_max":        {PassMax: -1},
		"every":           {Every: -1},
	} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%s: %+v is accepted", name, c)
		}
		if _, err := NewRecovery(nil, c); err == nil {
			t.Errorf("%s: a recovery is made of %+v", name, c)
		}
	}
}
