package requests

import (
	"context"
	"slices"
	"sync"
	"time"
)

// ringEvery is how far rings lie apart at least, and so how long a slot that was rung a moment ago waits for the next.
const ringEvery = 5 * time.Millisecond

// ringTimeout bounds one ring.
const ringTimeout = 5 * time.Second

// chime rings the slots that committed groups gave work to. It does so after the commit and once for all groups that
// came meanwhile: a wake in each group's own transaction made callers wait for it, and under load workers spent more on
// wakes than on the work. A process that dies in between leaves its work to the tick.
type chime struct {
	ringer  Ringer
	mu      sync.Mutex
	touched []Wake
	due     chan struct{} // has room for one
}

func newChime(ringer Ringer) *chime {
	return &chime{ringer: ringer, due: make(chan struct{}, 1)}
}

// touch has the slots rung soon.
func (c *chime) touch(wakes []Wake) {
	if len(wakes) == 0 {
		return
	}
	c.mu.Lock()
	for _, w := range wakes {
		if !slices.Contains(c.touched, w) {
			c.touched = append(c.touched, w)
		}
	}
	c.mu.Unlock()
	select {
	case c.due <- struct{}{}:
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
			c.ring(ctx)
		case <-ended:
			c.ring(ctx)
			return
		}
		pause.Reset(ringEvery)
		select {
		case <-pause.C:
		case <-ended:
		}
	}
}

// ring makes the wakes. Those it can't make are left to the tick, which would be sooner than a second attempt.
func (c *chime) ring(ctx context.Context) {
	c.mu.Lock()
	wakes := c.touched
	c.touched = nil
	c.mu.Unlock()
	if len(wakes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ringTimeout)
	defer cancel()
	_ = c.ringer.Ring(ctx, wakes)
}
