package queues

import (
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/inventory"
)

const (
	// deferFirst is for how long a variant's requests are left whose stock was found locked, twice as long after each
	// further time up to deferMax.
	deferFirst = 2 * time.Millisecond
	deferMax   = 64 * time.Millisecond
	// deferTries is after how many times in a row the lock is waited for, about a second after the first.
	deferTries = 20
	// deferWait is how long it is waited for.
	deferWait = time.Second
	// deferredMax bounds the variants that are left. A drain waits for the stocks of others.
	deferredMax = 1000
)

// deferrals are variants of a lane whose stocks other transactions had locked when this process tried them: their requests
// are left for a moment, so that the others of a batch do not wait for them. A stock that is always locked, as by checkouts
// that follow each other, would never be found free: after some tries its lock is waited for, by one drain at a time and
// for the requests of that variant alone. It is safe for concurrent use; a nil one leaves nothing.
type deferrals struct {
	mu       sync.Mutex
	variants map[inventory.Ref]*deferral
	waiting  bool // a drain waits for a lock
}

type deferral struct {
	tries int
	until time.Time
}

// next returns which variants to leave out of the next claim. only, if not nil, is the one to claim and wait for instead;
// then waited must follow.
func (d *deferrals) next() (skip []inventory.Ref, only *inventory.Ref) {
	if d == nil {
		return nil, nil
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for v, left := range d.variants {
		switch {
		case left.tries >= deferTries && !d.waiting && now.After(left.until):
			d.waiting = true
			return nil, &v
		case left.tries >= deferTries || now.Before(left.until):
			skip = append(skip, v)
		}
	}
	return skip, nil
}

// waited ends the wait for the lock of a variant, if only is not nil. It reports whether the lock was not granted in time.
func (d *deferrals) waited(only *inventory.Ref, err error) (inVain bool) {
	if only == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = false
	if err == nil {
		delete(d.variants, *only)
	} else if left := d.variants[*only]; left != nil {
		left.until = time.Now().Add(deferWait)
	}
	return pgerr.IsLockTimeout(err)
}

// note records which variants of a batch were locked, and which were not.
func (d *deferrals) note(locked, free map[inventory.Ref]struct{}) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.variants) > 0 {
		for v := range free {
			delete(d.variants, v)
		}
	}
	for v := range locked {
		left := d.variants[v]
		if left == nil {
			if len(d.variants) >= deferredMax {
				continue
			}
			if d.variants == nil {
				d.variants = make(map[inventory.Ref]*deferral)
			}
			left = &deferral{}
			d.variants[v] = left
		}
		left.until = now.Add(min(deferFirst<<min(left.tries, 10), deferMax))
		left.tries++
	}
}
