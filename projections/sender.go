package projections

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
)

// message is a frame that is to be sent. If its deltas can be combined, the
// delta replaces the frame's payload, and merge combines two of them, to nil if
// that fails.
type message struct {
	Frame
	delta any
	merge func(a, b any) any
}

// encode makes the payload from the delta.
func (m *message) encode() Frame {
	if m.merge != nil && m.delta != nil {
		m.Payload = encoded(m.delta)
	}
	return m.Frame
}

const (
	// frameEvery is the least time between two frames of a channel whose deltas
	// can be combined.
	frameEvery = 50 * time.Millisecond
	// channelsMax bounds the channels that one sender limits. Frames of more
	// channels are sent without a limit.
	channelsMax = 50_000
	// flushTimeout bounds the sending of delayed frames.
	flushTimeout = 5 * time.Second
)

// sender sends frames, of each channel whose deltas can be combined at most one
// per frameEvery. A frame that comes earlier is delayed and combined with those
// that follow.
type sender struct {
	to  func(context.Context, []Frame) error
	log *slog.Logger

	mu       sync.Mutex
	channels map[channelOf]*limited
	armed    bool // a flush is scheduled
}

type channelOf struct {
	tenantID uuid.UUID
	name     string
}

// limited is a channel with a frame in the last frameEvery.
type limited struct {
	sentAt  time.Time
	waiting *message
}

func newSender(to func(context.Context, []Frame) error, log *slog.Logger) *sender {
	return &sender{to: to, log: log, channels: make(map[channelOf]*limited)}
}

// send sends the messages whose channels allow it, and delays the others. The
// error is that of the first ones.
func (s *sender) send(ctx context.Context, messages []message) error {
	now := make([]Frame, 0, len(messages))
	s.mu.Lock()
	at := time.Now()
	for i := range messages {
		if m := &messages[i]; s.admit(m, at) {
			now = append(now, m.encode())
		}
	}
	s.mu.Unlock()
	if len(now) == 0 {
		return nil
	}
	if err := s.to(ctx, now); err != nil {
		return &Error{Kind: ErrBroadcast, Err: err}
	}
	return nil
}

// admit reports whether the message is to be sent now. A rebuild replaces the
// waiting deltas that came before it, not a later one. The caller has locked the
// mutex.
func (s *sender) admit(m *message, at time.Time) bool {
	channel := channelOf{m.TenantID, m.Channel}
	known := s.channels[channel]
	switch {
	case m.merge == nil: // a rebuild, or a delta that cannot be combined
		if known != nil && known.waiting != nil && known.waiting.Version <= m.Version {
			known.waiting = nil
		}
		return true
	case known != nil && (known.waiting != nil || at.Sub(known.sentAt) < frameEvery):
		known.join(m)
		s.arm()
		return false
	case known == nil && len(s.channels) >= channelsMax:
		return true
	}
	s.channels[channel] = &limited{sentAt: at}
	s.arm()
	return true
}

// join adds the message to the one that waits. Runs that are not successive
// have events of another process between them: no delta describes both, and
// clients read the state.
func (l *limited) join(m *message) {
	w := l.waiting
	switch {
	case w == nil:
		joined := *m
		l.waiting = &joined
	case m.First == w.Version+1 && w.delta != nil && m.delta != nil:
		w.delta, w.Version = m.merge(w.delta, m.delta), m.Version
	default:
		w.delta, w.Payload = nil, nil
		w.First, w.Version = min(w.First, m.First), max(w.Version, m.Version)
	}
}

// arm schedules the next flush, unless one is. The caller has locked the mutex.
func (s *sender) arm() {
	if !s.armed {
		s.armed = true
		time.AfterFunc(frameEvery, func() {
			ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
			defer cancel()
			s.flush(ctx, false)
		})
	}
}

// flush sends the frames that were delayed long enough, or all of them, and
// forgets the channels that are not limited any more.
func (s *sender) flush(ctx context.Context, all bool) {
	var due []Frame
	s.mu.Lock()
	at := time.Now()
	for channel, l := range s.channels {
		switch {
		case !all && at.Sub(l.sentAt) < frameEvery:
		case l.waiting == nil:
			delete(s.channels, channel)
		default:
			due = append(due, l.waiting.encode())
			l.waiting, l.sentAt = nil, at
		}
	}
	s.armed = false
	if len(s.channels) > 0 {
		s.arm()
	}
	s.mu.Unlock()
	if len(due) == 0 {
		return
	}
	if err := s.to(ctx, due); err != nil {
		s.log.WarnContext(ctx, "frames were not sent", "frames", len(due), "error", &Error{Kind: ErrBroadcast, Err: err})
	}
}
