package dashboard

import "testing"

func TestSlow(t *testing.T) {
	t.Parallel()
	of := func(n int32) *int32 { return &n }
	rate := func(x float64) *float64 { return &x }
	for _, c := range []struct {
		lane Lane
		want string
	}{
		{Lane{}, ""},
		{Lane{Depth: 900, OldestSeconds: 4.9}, ""},
		{Lane{Depth: 1, OldestSeconds: 12.3}, "The oldest request waits 12 s."},
		{Lane{Depth: 1, OldestSeconds: 600}, "The oldest request waits 10 min."},
		{Lane{Depth: 1, OldestSeconds: 90_000}, "The oldest request waits 25 h."},
		{Lane{Depth: 0, OldestSeconds: 12}, ""},
		{Lane{Paused: true}, "Paused."},
		{Lane{Paused: true, RateCap: of(5), Depth: 1200, OldestSeconds: 3}, "Paused; 1200 requests wait, the oldest for 3 s."},
		{Lane{RateCap: of(5)}, ""},
		{Lane{RateCap: of(5), ArrivalsPerSecond: rate(4), Depth: 3, OldestSeconds: 1}, ""},
		{Lane{RateCap: of(5), ArrivalsPerSecond: rate(31.2), Depth: 3}, "Capped at 5 per second; 31 per second arrive."},
		{Lane{RateCap: of(1), ArrivalsPerSecond: rate(1.5), Depth: 3}, "Capped at 1 per second; 1.5 per second arrive."},
		{Lane{RateCap: of(1), ArrivalsPerSecond: rate(2.04), Depth: 3}, "Capped at 1 per second; 2 per second arrive."},
		{Lane{RateCap: of(5), ArrivalsPerSecond: rate(0), Depth: 1, OldestSeconds: 9}, "Capped at 5 per second; 1 request waits."},
		{Lane{RateCap: of(5), Depth: 40, OldestSeconds: 9}, "Capped at 5 per second; 40 requests wait."},
	} {
		got := ""
		if why := c.lane.slow(); why != nil {
			got = *why
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.lane, got, c.want)
		}
	}
}
