package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/progress"
)

// How often the view is drawn, and how often a line is written where the view
// cannot be drawn.
const (
	drawEvery  = 200 * time.Millisecond
	writeEvery = 2 * time.Second
)

// watch shows the progress of the sale until ctx ends. Every second it records
// the rate.
func (s *sale) watch(ctx context.Context) {
	f, ok := s.Out.(*os.File)
	v := &view{sale: s, out: s.Out, moves: ok && progress.IsTerminal(f), began: time.Now()}
	every := writeEvery
	if v.moves {
		every = drawEvery
	}
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	measured, shown := time.Time{}, time.Now()
	for {
		select {
		case <-ctx.Done():
			v.show()
			fmt.Fprintln(v.out)
			return
		case now := <-tick.C:
			if now.Sub(measured) >= time.Second {
				v.measure(now)
				measured = now
			}
			if now.Sub(shown) >= every {
				v.show()
				shown = now
			}
		}
	}
}

// view is what is shown.
type view struct {
	sale  *sale
	out   io.Writer
	moves bool // lines can be drawn over
	began time.Time
	drawn bool

	rate              int64
	hotP99, normalP99 time.Duration
}

func (v *view) measure(now time.Time) {
	s := v.sale
	v.hotP99 = s.hot.recentP99()
	v.normalP99 = max(s.before.recentP99(), s.during.recentP99())
	v.rate = s.rates.next(s.hot.decided()+s.before.decided()+s.during.decided(), now)
}

const barWidth = 30

func (v *view) show() {
	s := v.sale
	arrived, hot := s.arrived.Load(), s.hot.accepted.Load()
	normal, normalHeld := s.before.accepted.Load()+s.during.accepted.Load(), s.before.held.Load()+s.during.held.Load()
	seconds := time.Since(v.began).Seconds()
	if !v.moves {
		fmt.Fprintf(v.out, "%5.1f s  hot: %s accepted, %s held, %s sold out, p99 %s | normal: %s accepted, %s held, p99 %s | %s/s\n",
			seconds, grouped(hot), grouped(s.hot.held.Load()), grouped(s.hot.soldOut.Load()), inMS(v.hotP99),
			grouped(normal), grouped(normalHeld), inMS(v.normalP99), grouped(v.rate))
		return
	}
	if v.drawn {
		fmt.Fprint(v.out, "\x1b[4A") // up to the view's first line
	}
	v.drawn = true
	full := int(barWidth * arrived / int64(s.Buyers))
	state := "normal traffic alone"
	if s.opened.Load() {
		state = "the sale is open"
	}
	lines := []string{
		fmt.Sprintf("  %5.1f s  %s%s  %s", seconds, strings.Repeat("█", full), strings.Repeat("░", barWidth-full), state),
		fmt.Sprintf("  hot      %7s accepted %7s held %7s sold out   p99 %s", grouped(hot), grouped(s.hot.held.Load()), grouped(s.hot.soldOut.Load()), inMS(v.hotP99)),
		fmt.Sprintf("  normal   %7s accepted %7s held %7s sold out   p99 %s", grouped(normal), grouped(normalHeld), grouped(s.before.soldOut.Load()+s.during.soldOut.Load()), inMS(v.normalP99)),
		fmt.Sprintf("  both     %7s decided in the last second", grouped(v.rate)),
	}
	for _, line := range lines {
		fmt.Fprintf(v.out, "\x1b[2K%s\n", line)
	}
}

// inMS formats a duration in milliseconds.
func inMS(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	if ms := float64(d) / float64(time.Millisecond); ms < 10 {
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}
