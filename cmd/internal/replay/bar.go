package replay

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
)

// bar draws how far a replay is; the zero value draws nothing.
type bar struct{ drawn *progressbar.ProgressBar }

// newBar makes a bar for total outcomes on w. It draws nothing if w is nil or a
// file that is not a terminal.
func newBar(w io.Writer, total int) bar {
	if w == nil {
		return bar{}
	}
	if f, ok := w.(*os.File); ok && !IsTerminal(f) {
		return bar{}
	}
	return bar{progressbar.NewOptions(total,
		progressbar.OptionSetWriter(w), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
		progressbar.OptionShowIts(), progressbar.OptionSetItsString("decided"),
		progressbar.OptionSetPredictTime(false), progressbar.OptionClearOnFinish(),
	)}
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool {
	at, err := f.Stat()
	return err == nil && at.Mode()&os.ModeCharDevice != 0
}

// drawEvery is how often the bar moves.
const drawEvery = 100 * time.Millisecond

// follow draws until ctx ends.
func (b bar) follow(ctx context.Context, r *run) {
	if b.drawn == nil {
		return
	}
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	for {
		b.drawn.Describe(fmt.Sprintf("%d accepted", r.accepted.Load()))
		_ = b.drawn.Set64(r.decided.Load()) // an error means that the terminal is gone
		select {
		case <-ctx.Done():
			_ = b.drawn.Finish()
			return
		case <-tick.C:
		}
	}
}
