package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/progress"
)

// drawEvery is how often the bar moves.
const drawEvery = 100 * time.Millisecond

// follow draws how far the replay is, until ctx ends.
func (r *run) follow(ctx context.Context, bar progress.Bar) {
	if bar == (progress.Bar{}) {
		return
	}
	defer bar.Finish()
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		bar.Describe(fmt.Sprintf("%d accepted", r.accepted.Load()))
		bar.Set(r.decided.Load())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
