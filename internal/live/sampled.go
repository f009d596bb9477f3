package live

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/holdfast/holdfast/internal/sleep"
)

// startSampling samples the channel until stop is called. The caller holds
// h.mu.
func (h *Hub) startSampling(c *channel, sampled *Sampled) {
	ctx, stop := h.background()
	c.stop = stop
	every := cmp.Or(sampled.Every, time.Second)
	h.running.Go(func() {
		for ctx.Err() == nil {
			h.takeSample(ctx, c, sampled)
			_ = sleep.For(ctx, every) // or ctx ends
		}
	})
}

// sampledAs returns what samples the channel, nil if it is not sampled.
func (h *Hub) sampledAs(channel string) *Sampled {
	for i := range h.config.Sampled {
		if _, is := h.config.Sampled[i].key(channel); is {
			return &h.config.Sampled[i]
		}
	}
	return nil
}

// takeSample reads one sample and offers it to all subscribers, if it differs from
// the last one.
func (h *Hub) takeSample(ctx context.Context, c *channel, sampled *Sampled) {
	select {
	case h.sampling <- struct{}{}:
	case <-ctx.Done():
		return
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	state, err := sampled.read(reading, c.tenant.id, c.name)
	cancel()
	<-h.sampling
	if err != nil {
		if ctx.Err() == nil {
			h.config.Log.WarnContext(ctx, "a live channel could not be sampled; the next sample follows", "channel", c.name, "tenant_id", c.tenant.id, "error", err)
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.sample != nil && bytes.Equal(state, c.state) {
		return
	}
	c.state = state
	c.version++
	f := newSnapshot(c.name, c.version, state)
	c.sample = &f
	for s := range c.subscribers {
		s.offerSample(&f)
	}
}
