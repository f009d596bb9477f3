package queues

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"
)

// permits bounds how many batches of a lane run concurrently. While no permit
// is free, tenants receive permits in turn (round robin), and the streams of
// one tenant in the order of their calls. It is safe for concurrent use.
type permits struct {
	mu       sync.Mutex
	free     int
	waiting  map[uuid.UUID][]chan struct{} // by tenant; a permit is granted by closing the channel
	rotation []uuid.UUID                   // the tenants in waiting, the next one first
}

func newPermits(n int) *permits {
	return &permits{free: n, waiting: make(map[uuid.UUID][]chan struct{})}
}

// acquire waits for a permit. Streams whose tenant is nil count as one tenant.
func (p *permits) acquire(ctx context.Context, tenant *uuid.UUID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var key uuid.UUID
	if tenant != nil {
		key = *tenant
	}
	p.mu.Lock()
	if p.free > 0 {
		p.free--
		p.mu.Unlock()
		return nil
	}
	granted := make(chan struct{})
	if len(p.waiting[key]) == 0 {
		p.rotation = append(p.rotation, key)
	}
	p.waiting[key] = append(p.waiting[key], granted)
	p.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-granted: // meanwhile
		p.grant()
	default:
		p.leave(key, granted)
	}
	return ctx.Err()
}

// leave removes a stream that waits.
func (p *permits) leave(key uuid.UUID, granted chan struct{}) {
	p.waiting[key] = slices.DeleteFunc(p.waiting[key], func(c chan struct{}) bool { return c == granted })
	if len(p.waiting[key]) == 0 {
		delete(p.waiting, key)
		p.rotation = slices.DeleteFunc(p.rotation, func(t uuid.UUID) bool { return t == key })
	}
}

// release gives a permit back.
func (p *permits) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grant()
}

// grant gives a permit to the next stream that waits, or keeps it.
func (p *permits) grant() {
	if len(p.rotation) == 0 {
		p.free++
		return
	}
	key := p.rotation[0]
	next := p.waiting[key][0]
	p.rotation = p.rotation[1:]
	p.waiting[key] = p.waiting[key][1:]
	if len(p.waiting[key]) == 0 {
		delete(p.waiting, key)
	} else {
		p.rotation = append(p.rotation, key)
	}
	close(next)
}
