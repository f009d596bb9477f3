package ops

import "testing"

func TestSlow(t *testing.T) {
	t.Parallel()
	of := func(n int32) *int32 { return &n }
	rate := func(x float64) *float64 { return &x }
	for _, c := range []struct {
		lane OverviewLane
		want string
	}{
		{OverviewLane{}, ""},
		{OverviewLane{Depth: 900, OldestSeconds: 4.9}, ""},
		{OverviewLane{Depth: 1, OldestSeconds: 12.3}, "The oldest request waits 12 s."},
		{OverviewLane{Depth: 1, OldestSeconds: 600}, "The oldest request waits 10 min."},
		{OverviewLane{Depth: 1, OldestSeconds: 90_000}, "The oldest request waits 25 h."},
		{OverviewLane{Depth: 0, OldestSeconds: 12}, ""},
		{OverviewLane{Paused: true}, "Paused."},
		{OverviewLane{Paused: true, RateCap: of(5), Depth: 1200, OldestSeconds: 3}, "Paused; 1200 requests wait, the oldest for 3 s."},
		{OverviewLane{RateCap: of(5)}, ""},
		{OverviewLane{RateCap: of(5), ArrivalsPerSecond: rate(4), Depth: 3, OldestSeconds: 1}, ""},
		{OverviewLane{RateCap: of(5), ArrivalsPerSecond: rate(31.2), Depth: 3}, "Capped at 5 per second; 31 per second arrive."},
		{OverviewLane{RateCap: of(1), ArrivalsPerSecond: rate(1.5), Depth: 3}, "Capped at 1 per second; 1.5 per second arrive."},
		{OverviewLane{RateCap: of(1), ArrivalsPerSecond: rate(2.04), Depth: 3}, "Capped at 1 per second; 2 per second arrive."},
		{OverviewLane{RateCap: of(5), ArrivalsPerSecond: rate(0), Depth: 1, OldestSeconds: 9}, "Capped at 5 per second; 1 request waits."},
		{OverviewLane{RateCap: of(5), Depth: 40, OldestSeconds: 9}, "Capped at 5 per second; 40 requests wait."},
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
