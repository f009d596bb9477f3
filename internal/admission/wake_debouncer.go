package admission

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// A notification is followed by a pause that grows with the number of requests
// it notified of, because the drain has more work and decides the next requests
// together. notifyPauseMax bounds the pause. A caller that waits for its
// outcome ends it.
const (
	pausePerRequest = 500 * time.Microsecond
	notifyPauseMax  = 25 * time.Millisecond
)

// insertPause is the pause after an insert of durable wakes. The workers are
// also notified, and a tick finds the work that neither delivered.
const insertPause = 100 * time.Millisecond

// wakeTimeout bounds one insert of wakes, or one notification.
const wakeTimeout = 5 * time.Second

// wakeDebouncer wakes the slots that committed groups gave work, by
// notification and by durable wakes. It does so after the commit, once for all
// groups that were committed meanwhile. Wakes in each group's own transaction
// made callers wait, and under load workers spent more time on wakes than on
// requests. If a process dies in between, the tick finds its work.
type wakeDebouncer struct {
	inserter *queues.WakeInserter

	mu         sync.Mutex
	unnotified []lanes.Stream // not notified yet
	requests   int            // how many requests unnotified is for
	uninserted []lanes.Stream // without a durable wake yet

	due    chan struct{} // a slot is to be woken; capacity 1
	urgent chan struct{} // a caller waits for its outcome; capacity 1
}

func newWakeDebouncer(inserter *queues.WakeInserter) *wakeDebouncer {
	return &wakeDebouncer{inserter: inserter, due: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
}

// add makes run wake the slots soon, for a group of requests.
func (d *wakeDebouncer) add(wakes []lanes.Stream, group []requestrows.Submission) {
	if len(wakes) == 0 {
		return
	}
	d.mu.Lock()
	d.requests += len(group)
	d.unnotified, d.uninserted = union(d.unnotified, wakes), union(d.uninserted, wakes)
	d.mu.Unlock()
	if slices.ContainsFunc(group, func(s requestrows.Submission) bool { return s.Waits }) {
		signal(d.urgent)
	}
	signal(d.due)
}

// union returns wakes and the elements of more that wakes does not have.
func union(wakes, more []lanes.Stream) []lanes.Stream {
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

// run wakes slots until ended is closed. Then it wakes those that are left.
func (d *wakeDebouncer) run(ctx context.Context, ended <-chan struct{}) {
	notifyTimer, insertTimer := time.NewTimer(0), time.NewTimer(0)
	defer notifyTimer.Stop()
	defer insertTimer.Stop()
	var mayNotify, mayInsert bool
	for {
		due := d.due
		if !mayNotify {
			due = nil
		}
		select {
		case <-notifyTimer.C:
			mayNotify = true
			continue
		case <-insertTimer.C:
			mayInsert = true
		case <-due:
		case <-d.urgent:
		case <-ended:
			d.notify(ctx)
			d.insert(ctx)
			return
		}
		if n := d.notify(ctx); n > 0 {
			notifyTimer.Reset(min(time.Duration(n)*pausePerRequest, notifyPauseMax))
			mayNotify = false
		}
		if mayInsert && d.insert(ctx) {
			insertTimer.Reset(insertPause)
			mayInsert = false
		}
	}
}

// notify notifies the workers of new work, and returns the number of requests.
// If it fails, it is counted as failed, and the durable wakes and
// the tick find the work.
func (d *wakeDebouncer) notify(ctx context.Context) (notified int) {
	d.mu.Lock()
	wakes, notified := d.unnotified, d.requests
	d.unnotified, d.requests = nil, 0
	d.mu.Unlock()
	if len(wakes) > 0 {
		wake(ctx, "admission.notify", d.inserter.Notify, wakes)
	}
	return notified
}

// insert inserts the durable wakes, and reports whether there were any. An
// insert that fails is counted as failed and not repeated, because the tick
// comes sooner.
func (d *wakeDebouncer) insert(ctx context.Context) bool {
	d.mu.Lock()
	wakes := d.uninserted
	d.uninserted = nil
	d.mu.Unlock()
	if len(wakes) == 0 {
		return false
	}
	wake(ctx, "admission.insert_wakes", d.inserter.Insert, wakes)
	return true
}

func wake(ctx context.Context, verb string, by func(context.Context, []lanes.Stream) error, wakes []lanes.Stream) {
	ctx, cancel := context.WithTimeout(ctx, wakeTimeout)
	defer cancel()
	ctx, done := telemetry.Verb(ctx, verb)
	done("", by(ctx, wakes))
}

// committed wakes the slots that got work, and passes the group to the observer,
// without the refused members of a metered group.
func (in *Intake) committed(inserted requestrows.Inserted, group []requestrows.Submission) {
	if in.config.Metered {
		group = slices.DeleteFunc(group, func(s requestrows.Submission) bool { return inserted.Results[s.Ref()].Err != nil })
	}
	in.wakes.add(inserted.Streams, group)
	if in.config.Observe != nil {
		in.config.Observe(group)
	}
}
