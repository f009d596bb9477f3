package requests

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// A ring is followed by a pause that grows with the number of requests it announced: the drain has the more to do, and
// better does the next ones together. pauseMax is as long as it gets. A caller that waits for its outcome ends the pause.
const (
	pausePerRequest = 100 * time.Microsecond
	pauseMax        = 25 * time.Millisecond
)

// ringTimeout bounds one ring.
const ringTimeout = 5 * time.Second

// chime rings the slots that committed groups gave work to. It does so after the commit and once for all groups that
// came meanwhile: a wake in each group's own transaction made callers wait for it, and under load workers spent more on
// wakes than on the work. A process that dies in between leaves its work to the tick.
type chime struct {
	ringer  Ringer
	mu      sync.Mutex
	touched []Wake
	waiting int           // requests that no ring announced yet
	due     chan struct{} // has room for one
	urgent  chan struct{} // a caller waits; has room for one
}

func newChime(ringer Ringer) *chime {
	return &chime{ringer: ringer, due: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// touch has the slots rung soon for a group of requests.
func (c *chime) touch(wakes []Wake, group []Submission) {
	if len(wakes) == 0 {
		return
	}
	c.mu.Lock()
	c.waiting += len(group)
	for _, w := range wakes {
		if !slices.Contains(c.touched, w) {
			c.touched = append(c.touched, w)
		}
	}
	c.mu.Unlock()
	if slices.ContainsFunc(group, func(s Submission) bool { return s.Waits }) {
		signal(c.urgent)
	}
	signal(c.due)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run rings until ended is closed, and then what is left.
func (c *chime) run(ctx context.Context, ended <-chan struct{}) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-c.due:
			select {
			case <-c.urgent: // by this ring
			default:
			}
			pause.Reset(min(time.Duration(c.ring(ctx))*pausePerRequest, pauseMax))
		case <-ended:
			c.ring(ctx)
			return
		}
		select {
		case <-pause.C:
		case <-c.urgent:
		case <-ended:
		}
	}
}

// ring makes the wakes, and says for how many requests. Those it can't make are counted, and left to the tick, which would
// be sooner than a second attempt.
func (c *chime) ring(ctx context.Context) (announced int) {
	c.mu.Lock()
	wakes, announced := c.touched, c.waiting
	c.touched, c.waiting = nil, 0
	c.mu.Unlock()
	if len(wakes) > 0 {
		ctx, cancel := context.WithTimeout(ctx, ringTimeout)
		defer cancel()
		ctx, done := telemetry.Verb(ctx, "requests.ring")
		done("", c.ringer.Ring(ctx, wakes))
	}
	return announced
}

// announce has the slots rung that got work, and tells of a group that was admitted.
func (in *Intake) announce(wakes []Wake, group []Submission) {
	in.chime.touch(wakes, group)
	if in.config.Observe != nil {
		in.config.Observe(group)
	}
}
