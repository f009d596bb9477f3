package requests

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// A notification is followed by a pause that grows with the number of requests it announced: the drain has the more to do,
// and better does the next ones together. pauseMax is as long as it gets. A caller that waits for its outcome ends the pause.
const (
	pausePerRequest = 500 * time.Microsecond
	pauseMax        = 25 * time.Millisecond
)

// ringPause is the pause after durable wakes. The workers are notified besides, and a tick finds what neither reached.
const ringPause = 100 * time.Millisecond

// ringTimeout bounds one ring, or one notification.
const ringTimeout = 5 * time.Second

// chime wakes the slots that committed groups gave work to: by notification, and by durable wakes. It does so after the
// commit and once for all groups that came meanwhile: a wake in each group's own transaction made callers wait for it, and
// under load workers spent more on wakes than on the work. A process that dies in between leaves its work to the tick.
type chime struct {
	ringer  Ringer
	mu      sync.Mutex
	fresh   []Wake        // that were not notified yet
	waiting int           // requests that no notification announced yet
	touched []Wake        // that have no durable wake yet
	due     chan struct{} // has room for one
	urgent  chan struct{} // a caller waits; has room for one
}

func newChime(ringer Ringer) *chime {
	return &chime{ringer: ringer, due: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// touch has the slots woken soon for a group of requests.
func (c *chime) touch(wakes []Wake, group []Submission) {
	if len(wakes) == 0 {
		return
	}
	c.mu.Lock()
	c.waiting += len(group)
	c.fresh, c.touched = with(c.fresh, wakes), with(c.touched, wakes)
	c.mu.Unlock()
	if slices.ContainsFunc(group, func(s Submission) bool { return s.Waits }) {
		signal(c.urgent)
	}
	signal(c.due)
}

// with returns the wakes and those of more that are not among them.
func with(wakes, more []Wake) []Wake {
	for _, w := range more {
		if !slices.Contains(wakes, w) {
			wakes = append(wakes, w)
		}
	}
	return wakes
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run wakes until ended is closed, and then what is left.
func (c *chime) run(ctx context.Context, ended <-chan struct{}) {
	notified, rung := time.NewTimer(0), time.NewTimer(0)
	defer notified.Stop()
	defer rung.Stop()
	var mayNotify, mayRing bool
	for {
		due := c.due
		if !mayNotify {
			due = nil
		}
		select {
		case <-notified.C:
			mayNotify = true
			continue
		case <-rung.C:
			mayRing = true
		case <-due:
		case <-c.urgent:
		case <-ended:
			c.notify(ctx)
			c.ring(ctx)
			return
		}
		if n := c.notify(ctx); n > 0 {
			notified.Reset(min(time.Duration(n)*pausePerRequest, pauseMax))
			mayNotify = false
		}
		if mayRing && c.ring(ctx) {
			rung.Reset(ringPause)
			mayRing = false
		}
	}
}

// notify notifies the workers of what they were not notified of yet, and returns of how many requests. A notification that
// fails is counted, and left to the durable wakes and the tick.
func (c *chime) notify(ctx context.Context) (announced int) {
	c.mu.Lock()
	wakes, announced := c.fresh, c.waiting
	c.fresh, c.waiting = nil, 0
	c.mu.Unlock()
	if len(wakes) > 0 {
		c.make(ctx, "requests.notify", c.ringer.Notify, wakes)
	}
	return announced
}

// ring makes the durable wakes, and reports whether there were any to make. Those it can't make are counted, and left to the
// tick, which would be sooner than a second attempt.
func (c *chime) ring(ctx context.Context) bool {
	c.mu.Lock()
	wakes := c.touched
	c.touched = nil
	c.mu.Unlock()
	if len(wakes) == 0 {
		return false
	}
	c.make(ctx, "requests.ring", c.ringer.Ring, wakes)
	return true
}

func (c *chime) make(ctx context.Context, verb string, wake func(context.Context, []Wake) error, wakes []Wake) {
	ctx, cancel := context.WithTimeout(ctx, ringTimeout)
	defer cancel()
	ctx, done := telemetry.Verb(ctx, verb)
	done("", wake(ctx, wakes))
}

// announce has the slots rung that got work, and tells of a group that was admitted.
func (in *Intake) announce(wakes []Wake, group []Submission) {
	in.chime.touch(wakes, group)
	if in.config.Observe != nil {
		in.config.Observe(group)
	}
}
