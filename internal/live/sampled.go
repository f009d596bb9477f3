package live

import (
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

// takeSample reads one sample and offers it to all subscribers.
func (h *Hub) takeSample(ctx context.Context, c *channel, sampled *Sampled) {
	select {
	case h.sampling <- struct{}{}:
	case <-ctx.Done():
		return
	}
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	state, err := sampled.Sample(reading, c.tenant.id)
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
	c.version++
	f := newSnapshot(c.name, c.version, state)
	c.sample = &f
	for s := range c.subscribers {
		s.offerSample(&f)
	}
}
