package live

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/sleep"
)

// versionsMax is how many versions one statement reads.
const versionsMax = 2000

// checked is a channel whose version is compared.
type checked struct {
	channel *channel
	// before is the version that was received when the comparison began.
	before int64
}

// checkVersions compares the versions of all channels with those in the
// database until ctx ends: every second, and at once when the hub has begun to
// listen. A version in the database that was not received within half a second
// was lost.
func (h *Hub) checkVersions(ctx context.Context) {
	if h.config.Versions == nil {
		return
	}
	half := h.config.Limits.Check / 2
	for ctx.Err() == nil {
		all := h.subscribed()
		for len(all) > 0 && ctx.Err() == nil {
			piece := all[:min(len(all), versionsMax)]
			all = all[len(piece):]
			h.compare(ctx, piece)
		}
		if sleep.For(ctx, half) != nil {
			return
		}
		h.dropLost()
		timer := time.NewTimer(half)
		select {
		case <-timer.C:
		case <-h.checkNow:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// subscribed returns the channels of projections that have subscribers.
func (h *Hub) subscribed() (all []checked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tenants {
		for _, c := range t.channels {
			if c.stop == nil {
				all = append(all, checked{c, c.version})
			}
		}
	}
	return all
}

// compare reads the versions of the channels. A version above the one that was
// received is noted. One that is below what was received before the read means
// that the state was deleted: the subscribers need a snapshot.
func (h *Hub) compare(ctx context.Context, piece []checked) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	ids, names := make([]uuid.UUID, len(piece)), make([]string, len(piece))
	for i := range piece {
		ids[i], names[i] = piece[i].channel.tenant.id, piece[i].channel.name
	}
	versions, err := h.config.Versions(reading, h.config.Pool, ids, names)
	if err != nil || len(versions) != len(piece) {
		if ctx.Err() == nil {
			h.config.Log.WarnContext(ctx, "the versions of live channels could not be read; they are read again", "error", err)
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, version := range versions {
		c := piece[i].channel
		switch {
		case version < piece[i].before:
			c.version = version
			for s := range c.subscribers {
				s.dropAhead(version)
			}
		case version > c.version:
			c.ahead = version
		}
	}
}

// dropLost drops the subscribers of the channels that have still not received
// the version that was found in the database.
func (h *Hub) dropLost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tenants {
		for _, c := range t.channels {
			if c.ahead > c.version {
				c.version = c.ahead
				for s := range c.subscribers {
					s.dropBehind(c.ahead)
				}
			}
			c.ahead = 0
		}
	}
}
