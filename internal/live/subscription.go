package live

import (
	"context"
	"sync"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// Subscription receives the frames of one channel. One goroutine at a time may
// call Next.
type Subscription struct {
	hub     *Hub
	channel *channel
	box     *mailbox

	// The mailbox's lock guards what follows.

	queue []Frame
	// last is the version of the last frame that was queued.
	last  int64
	state state
	ready bool // it is in mailbox.ready
	// known means that the reader has received a state. rebuilt is the version
	// of a rebuild that it is to receive as the state that is read: 0 for none.
	known   bool
	rebuilt int64
}

// state is what a subscription receives next.
type state int

const (
	dropped state = iota // a snapshot, once its reader reads again; nothing is queued
	waiting              // a snapshot, for which its reader waits; nothing is queued
	current              // the frame that follows the last one
	closed               // nothing
)

// Next returns the next frame: first a snapshot, then frames whose versions
// follow, and a snapshot again after a gap or if more was queued than the
// limits allow. A call that waits for the first snapshot makes the hub read it.
//
// Errors: ErrStopped once the hub or the subscription has ended, and ctx's
// error.
func (s *Subscription) Next(ctx context.Context) (Frame, error) {
	for {
		if f, ok := s.box.pop(); ok {
			return f, nil
		}
		select {
		case <-s.box.wake:
		case <-s.box.ended:
			return Frame{}, ErrStopped
		case <-s.hub.ended:
			return Frame{}, ErrStopped
		case <-ctx.Done():
			return Frame{}, ctx.Err()
		}
	}
}

// Close ends the subscription. It may be called several times, and while Next
// waits.
func (s *Subscription) Close() {
	s.hub.leave(s)
	s.box.end()
}

// mailbox holds what is queued for one reader: a connection, with all of its
// subscriptions, or the caller of Subscribe.
type mailbox struct {
	limits *Limits
	// wake receives a value when there may be something to pop.
	wake  chan struct{}
	ended chan struct{}
	once  sync.Once

	mu sync.Mutex
	// notes are messages that belong to no subscription.
	notes [][]byte
	// ready are the subscriptions with a frame, and those that were dropped. Each
	// is in it once.
	ready         []*Subscription
	frames, bytes int // queued for all subscriptions together
}

func newMailbox(limits *Limits) *mailbox {
	return &mailbox{limits: limits, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

func (b *mailbox) end() { b.once.Do(func() { close(b.ended) }) }

// notesMax bounds the notes that a client has not read.
const notesMax = 32

// note queues a message before all frames. It reports whether there was room.
func (b *mailbox) note(text []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.notes) >= notesMax {
		return false
	}
	b.notes = append(b.notes, text)
	b.signal()
	return true
}

// signal wakes the reader. The caller holds b.mu.
func (b *mailbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default: // it has not taken the last one
	}
}

// pop returns the next frame, in turn of the subscriptions. It asks the hub for
// the snapshots that dropped subscriptions need, now that their reader reads.
func (b *mailbox) pop() (f Frame, found bool) {
	var wanted []*Subscription
	b.mu.Lock()
	if len(b.notes) > 0 {
		f.text, found = b.notes[0], true
		b.notes = b.notes[1:]
	}
	for !found && len(b.ready) > 0 {
		s := b.ready[0]
		b.ready[0] = nil
		b.ready = b.ready[1:]
		s.ready = false
		if s.state == dropped {
			s.state = waiting
			wanted = append(wanted, s)
		} else if len(s.queue) > 0 {
			f, found = s.pop(), true
		}
	}
	b.mu.Unlock()
	for _, s := range wanted {
		s.hub.want(s)
	}
	return f, found
}

// pop removes the first frame. The caller holds the lock of the mailbox.
func (s *Subscription) pop() Frame {
	f := s.queue[0]
	s.known = true
	s.queue[0] = Frame{}
	s.queue = s.queue[1:]
	s.box.frames--
	s.box.bytes -= f.size()
	if len(s.queue) > 0 {
		s.makeReady()
	} else {
		s.queue = nil
	}
	return f
}

// makeReady lets the reader find the subscription. The caller holds the lock of
// the mailbox.
func (s *Subscription) makeReady() {
	if !s.ready {
		s.ready = true
		s.box.ready = append(s.box.ready, s)
	}
	s.box.signal()
}

// push queues a frame if there is room. The caller holds the lock of the
// mailbox.
func (s *Subscription) push(f *Frame) bool {
	b := s.box
	if b.frames >= b.limits.Frames || b.bytes >= b.limits.Bytes {
		return false
	}
	s.queue = append(s.queue, *f)
	b.frames++
	b.bytes += f.size()
	s.last = f.Version
	if f.Version >= s.rebuilt {
		s.rebuilt = 0
	}
	s.makeReady()
	return true
}

// clear removes all that is queued. The caller holds the lock of the mailbox.
func (s *Subscription) clear() {
	s.box.frames -= len(s.queue)
	for i := range s.queue {
		s.box.bytes -= s.queue[i].size()
	}
	s.queue = nil
}

// Why a subscription needs a snapshot, as metrics count it.
const (
	slow      = "slow"      // more is queued than allowed
	missed    = "gap"       // a frame left a gap
	large     = "large"     // a frame was too large for a notification
	lost      = "lost"      // the versions show that no frame arrived
	restarted = "restarted" // the state was deleted
)

// drop lets the reader receive a snapshot when it reads again. The caller holds
// the lock of the mailbox.
func (s *Subscription) drop(why string) {
	telemetry.LiveResync(context.Background(), why)
	s.clear()
	s.state = dropped
	s.makeReady()
}

// offer queues the next frame of the channel, or drops the subscription if the
// frame leaves a gap, has no payload, or has no room. It never waits. A reader
// who is current or waits for a state receives a rebuild as a rebuild, also if
// the frame has no payload.
func (s *Subscription) offer(f *Frame) {
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	if s.state == closed || s.state == dropped {
		return
	}
	if f.begins() && s.last > 0 {
		s.rebuilt = 0
		if s.state == current {
			s.drop(restarted)
		}
		return
	}
	if f.Version <= s.last {
		return
	}
	if f.Event == Rebuild && s.known && (s.state == waiting || f.Payload == nil) {
		s.rebuilt = f.Version
	}
	if s.state == waiting {
		return
	}
	switch gap := f.First > s.last+1 && f.Event != Rebuild; {
	case gap:
		s.drop(missed)
	case f.Payload == nil:
		s.drop(large)
	case !s.push(f):
		s.drop(slow)
	}
}

// offerSnapshot queues a snapshot if the reader waits for one, and then the
// frames that arrived since the read of the snapshot began.
func (s *Subscription) offerSnapshot(read *readState, since []Frame) {
	s.box.mu.Lock()
	if s.state != waiting {
		s.box.mu.Unlock()
		return
	}
	s.state = current
	f := &read.snapshot
	if s.rebuilt > 0 && f.Version >= s.rebuilt {
		f = read.asRebuild()
	}
	queued := s.push(f)
	if !queued {
		s.drop(slow)
	}
	s.box.mu.Unlock()
	if queued {
		for i := range since {
			s.offer(&since[i])
		}
	}
}

// offerSample queues a sample in place of an earlier one.
func (s *Subscription) offerSample(f *Frame) {
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	if s.state == closed || s.state == dropped {
		return
	}
	s.clear()
	s.state = current
	if !s.push(f) {
		s.drop(slow)
	}
}

// dropBehind drops the subscription if it has not received the version.
func (s *Subscription) dropBehind(version int64) {
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	if s.state == current && s.last < version {
		s.drop(lost)
	}
}

// dropAhead drops the subscription if its version is above that of the channel,
// which was deleted and began again.
func (s *Subscription) dropAhead(version int64) {
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	if s.state == current && s.last > version {
		s.rebuilt = 0
		s.drop(restarted)
	}
}
