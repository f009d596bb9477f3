package boot

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/queues/normal"
)

// A worker is alive as long as its lanes' ticks end, and before they begin; it is not once none has ended for a minute.
func TestStalledLane(t *testing.T) {
	t.Parallel()
	lane, err := normal.NewLane(pgtest.New(t), slog.New(slog.DiscardHandler), queues.LaneConfig{TickEvery: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	w := &Worker{lanes: []*queues.Lane{lane}}
	if got := w.stalled(time.Now()); got != "" {
		t.Errorf("%q counts as stalled before it runs", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = lane.Run(ctx) })
	for lane.Ticked().IsZero() {
		select {
		case <-t.Context().Done():
		case <-time.After(time.Millisecond):
		}
	}
	stop()
	running.Wait()
	at := lane.Ticked()
	if got := w.stalled(at.Add(stalledAfter)); got != "" {
		t.Errorf("%q counts as stalled after %s", got, stalledAfter)
	}
	if got := w.stalled(at.Add(stalledAfter + time.Second)); got != lane.Name() {
		t.Errorf("%q counts as stalled, want the lane", got)
	}
}
