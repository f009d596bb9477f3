package queues

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// permits bounds how many batches of a lane run concurrently. While no permit
// is free, tenants receive permits in turn (round robin), and the streams of
// one tenant in the order of their calls. A batch that waits for a lock
// exchanges its permit, so that a lock delays no other stream. It is safe for
// concurrent use.
type permits struct {
	mu       sync.Mutex
	free     int
	waits    int // how many more batches may wait for a lock without a permit
	exchange bool
	waiting  map[uuid.UUID][]chan struct{} // by tenant; a permit is granted by closing the channel
	rotation []uuid.UUID                   // the tenants in waiting, the next one first
}

// newPermits makes n permits. Up to waits batches wait for locks without one; if
// waits is 0, a batch keeps its permit while it waits.
func newPermits(n, waits int) *permits {
	return &permits{free: n, waits: waits, exchange: waits > 0, waiting: make(map[uuid.UUID][]chan struct{})}
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

// permit is the permit of one batch.
type permit struct {
	of        *permits
	lockWait  time.Duration // how long the batch may wait for a lock
	exchanged bool
}

// wait gives the permit back before the batch waits for a lock. It returns
// false, and the batch must not wait, if too many others wait already.
func (p *permit) wait() bool {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if !p.of.exchange || p.exchanged {
		return true
	}
	if p.of.waits == 0 {
		return false
	}
	p.of.waits--
	p.exchanged = true
	p.of.grant()
	return true
}

// release ends the batch.
func (p *permit) release() {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.exchanged {
		p.of.waits++
	} else {
		p.of.grant()
	}
}

type permitKey struct{}

// withPermit passes the permit of a batch to where the batch locks its stock.
func withPermit(ctx context.Context, p *permit) context.Context {
	return context.WithValue(ctx, permitKey{}, p)
}

func permitOf(ctx context.Context) *permit { return ctx.Value(permitKey{}).(*permit) }
