package queues_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/queues/normal"
)

// A worker is alive before its lanes' ticks begin and while they end. It is not
// alive once no tick has ended for a minute.
func TestStalledLane(t *testing.T) {
	t.Parallel()
	lane, err := normal.NewLane(pgtest.New(t), slog.New(slog.DiscardHandler), queues.LaneConfig{TickEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	served := []*queues.Lane{lane}
	if got := queues.Stalled(served, time.Now()); got != "" {
		t.Errorf("%q counts as stalled before it runs", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = lane.Run(ctx) })
	pgtest.Until(t, "a tick has ended", func() bool { return !lane.Ticked().IsZero() })
	stop()
	running.Wait()
	at := lane.Ticked()
	if got := queues.Stalled(served, at.Add(time.Minute)); got != "" {
		t.Errorf("%q counts as stalled after %s", got, time.Minute)
	}
	if got := queues.Stalled(served, at.Add(time.Minute+time.Second)); got != lane.Name() {
		t.Errorf("%q counts as stalled, want the lane", got)
	}
}
