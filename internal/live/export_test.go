package live

import (
	"context"
	"time"
)

// The statements, for the test that prepares them.
var Statements = map[string]string{"mintSQL": mintSQL, "takeSQL": takeSQL, "purgeSQL": purgeSQL, "validKeysSQL": validKeysSQL}

// Paces reports how long each of n messages waits, if they arrive at once.
func Paces(ctx context.Context, n int) (waited []time.Duration) {
	var p pacer
	for range n {
		began := time.Now()
		_ = p.wait(ctx)
		waited = append(waited, time.Since(began))
	}
	return waited
}

// NotesMax is notesMax.
const NotesMax = notesMax

// Load is what a hub has of its clients.
type Load struct {
	Tenants, Channels, Connections, Sessions int
	Subscribers, Stale, Waiting              int // Waiting for a snapshot that is being read
	Frames, Bytes                            int // queued at most for one reader
}

// Load returns what the hub has now.
func (h *Hub) Load() (l Load) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Tenants, l.Channels, l.Connections, l.Sessions = len(h.tenants), h.channels, h.connections, len(h.sessions)
	for _, t := range h.tenants {
		for _, c := range t.channels {
			for s := range c.subscribers {
				s.box.mu.Lock()
				l.Subscribers++
				if s.state != current {
					l.Stale++
				}
				if s.state == waiting {
					l.Waiting++
				}
				l.Frames, l.Bytes = max(l.Frames, s.box.frames), max(l.Bytes, s.box.bytes)
				s.box.mu.Unlock()
			}
		}
	}
	return l
}

// Note queues a note for the subscription's reader.
func (s *Subscription) Note(text string) bool { return s.box.note([]byte(text)) }

// Want asks for a snapshot as a reader does.
func (s *Subscription) Want() { s.hub.want(s) }

// Forget removes the subscription's tenant, if nothing uses it.
func (s *Subscription) Forget() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.forget(s.channel.tenant)
}
