package traffic

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// view writes a line about the traffic every second.
type view struct {
	out   io.Writer
	kinds []kind
	// decided is how many requests were decided at the last line, peak the
	// highest number in a second.
	decided, peak int64
}

// kind is one kind of traffic, which several tallies may count.
type kind struct {
	name    string
	tallies []*tally
}

// start begins to write, until stop is called, which writes the last line.
func (v *view) start() (stop func()) {
	began, ended := time.Now(), make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for last := began; ; {
			select {
			case now := <-tick.C:
				v.write(now.Sub(began), now.Sub(last))
				last = now
			case <-ended:
				v.write(time.Since(began), time.Since(last))
				fmt.Fprintln(v.out)
				return
			}
		}
	})
	return func() { close(ended); writing.Wait() }
}

// write writes the counts, and what happened since the last line.
func (v *view) write(after, since time.Duration) {
	var parts []string
	decided := int64(0)
	for _, k := range v.kinds {
		c, p99 := sum(k.tallies...), time.Duration(0)
		for _, t := range k.tallies {
			p99 = max(p99, t.recentP99())
		}
		decided += c.decided()
		parts = append(parts, fmt.Sprintf("%s: %s accepted, %s held, %s sold out, p99 %s", k.name, grouped(c.accepted), grouped(c.held), grouped(c.soldOut), inMS(p99)))
	}
	rate := int64(float64(decided-v.decided) / since.Seconds())
	if since >= time.Second/2 { // else too short for a rate
		v.peak = max(v.peak, rate)
	}
	v.decided = decided
	fmt.Fprintf(v.out, "%5.1f s  %s | %s/s\n", after.Seconds(), strings.Join(parts, " | "), grouped(rate))
}

// grouped formats n with commas between thousands.
func grouped[N int | int64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
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
