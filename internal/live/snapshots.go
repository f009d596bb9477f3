package live

import (
	"context"
	"time"
)

const (
	// readersMax is how many reads of snapshots run at the same time, each for
	// one tenant. readMax is how many channels one of them reads.
	readersMax, readMax = 2, 200
	// readTimeout bounds one read.
	readTimeout = 5 * time.Second
	// readPause is the least time between two reads for one tenant. Subscribers
	// who come one after the other share reads, and a channel whose frames have
	// no payload has at most 20 snapshots per second. retryPause is the time
	// after a read that failed.
	readPause, retryPause = 50 * time.Millisecond, time.Second
)

// want makes the hub read a snapshot for a subscription whose reader waits for
// one. If a read has begun, its snapshot will do: the frames that arrived since
// follow it.
func (h *Hub) want(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := s.channel
	if _, found := c.subscribers[s]; !found {
		return // it was closed meanwhile
	}
	switch {
	case c.stop != nil:
		if c.sample != nil {
			s.offerSample(c.sample)
		}
	case !c.reading && !c.unread:
		c.unread = true
		c.tenant.unread = append(c.tenant.unread, c)
		h.enqueue(c.tenant)
	}
}

// enqueue lets a reader find the tenant, after the pause since its last read.
// The caller holds h.mu.
func (h *Hub) enqueue(t *tenant) {
	if t.queued || h.stopped {
		return
	}
	t.queued = true
	if pause := time.Until(t.notBefore); pause > 0 {
		time.AfterFunc(pause, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.startReader(t)
		})
		return
	}
	h.startReader(t)
}

// startReader adds a tenant to those that readers read. The caller holds h.mu.
func (h *Hub) startReader(t *tenant) {
	if h.stopped {
		return
	}
	h.unread = append(h.unread, t)
	if h.readers < readersMax {
		h.readers++
		h.running.Go(h.read)
	}
}

// read reads snapshots until no tenant needs one.
func (h *Hub) read() {
	for {
		h.mu.Lock()
		if len(h.unread) == 0 || h.stopped {
			h.readers--
			h.mu.Unlock()
			return
		}
		t := h.unread[0]
		h.unread = h.unread[1:]
		piece := t.take()
		h.mu.Unlock()

		read, err := h.readPiece(t, piece)

		h.mu.Lock()
		pause := readPause
		if err != nil {
			pause = retryPause
		}
		for _, c := range piece {
			h.deliverRead(c, read, err)
		}
		t.queued = false
		t.notBefore = time.Now().Add(pause)
		if len(t.unread) > 0 {
			h.enqueue(t)
		}
		h.forget(t)
		h.mu.Unlock()
	}
}

// take removes the channels of the next read. The caller holds the hub's lock.
func (t *tenant) take() (piece []*channel) {
	for len(t.unread) > 0 && len(piece) < readMax {
		c := t.unread[0]
		t.unread = t.unread[1:]
		c.unread = false
		if len(c.subscribers) > 0 {
			c.reading, c.since = true, nil
			piece = append(piece, c)
		}
	}
	return piece
}

// readPiece returns the snapshots of the channels that have a state.
func (h *Hub) readPiece(t *tenant, piece []*channel) (map[string]Frame, error) {
	if len(piece) == 0 {
		return nil, nil
	}
	ctx, end := h.background()
	defer end()
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	names := make([]string, len(piece))
	for i, c := range piece {
		names[i] = c.name
	}
	states, err := h.config.Snapshots(reading, h.config.Pool, t.id, names)
	if err != nil {
		if ctx.Err() == nil {
			h.config.Log.WarnContext(ctx, "the states of live channels could not be read; they are read again", "tenant_id", t.id, "error", err)
		}
		return nil, err
	}
	read := make(map[string]Frame, len(states))
	for i := range states {
		read[states[i].Channel] = newSnapshot(states[i].Channel, states[i].Version, states[i].Payload)
	}
	return read, nil
}

// deliverRead offers a snapshot to the subscribers that wait for one, or after
// an error lets it be read again. The caller holds h.mu.
func (h *Hub) deliverRead(c *channel, read map[string]Frame, err error) {
	since := c.since
	c.reading, c.since = false, nil
	if err != nil {
		if len(c.subscribers) > 0 && !c.unread {
			c.unread = true
			c.tenant.unread = append(c.tenant.unread, c)
		}
		return
	}
	snapshot, found := read[c.name]
	if !found {
		snapshot = newSnapshot(c.name, 0, nil)
	}
	c.version = snapshot.Version
	for i := range since {
		c.advance(&since[i])
	}
	state := readState{snapshot: snapshot}
	for s := range c.subscribers {
		s.offerSnapshot(&state, since)
		s.dropAhead(c.version)
	}
}
