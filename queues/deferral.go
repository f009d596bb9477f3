package queues

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/inventory"
)

const (
	// deferFirst is how long the requests of a variant are deferred when its
	// stock is found locked. It doubles each further time, up to deferMax.
	deferFirst = 2 * time.Millisecond
	deferMax   = 64 * time.Millisecond
	// deferTries is the number of times in a row after which a drain waits for
	// the lock, about a second after the first.
	deferTries = 20
	// deferWait is how long it waits. A drain of the hot lane waits no longer
	// either.
	deferWait = time.Second
	// deferredMax bounds the deferred variants. A variant that no drain has
	// found locked for staleAfter is removed.
	deferredMax = 1000
	staleAfter  = 10 * time.Second
)

// deferrals are the variants of the normal lane whose stocks, or a cart's hold
// of them, other transactions had locked when this process tried them. Their
// requests are deferred briefly, so that the other requests of a batch do not
// wait for them.
//
// A stock that is always locked, as by checkouts that follow each other, would
// never be found free. So after deferTries, one drain of the process at a time
// waits for the lock, for the requests of that variant alone. It is safe for
// concurrent use; a nil one defers nothing.
type deferrals struct {
	mu       sync.Mutex
	variants map[deferredRef]*deferral
	waiting  bool // a drain waits for a lock
}

// deferredRef names a variant of a slot.
type deferredRef struct {
	slot    int16
	variant inventory.Ref
}

type deferral struct {
	tries int
	until time.Time
}

// next returns the variants that the next claim at a slot must skip. If only is
// not nil, the drain claims only that variant and waits for its stock, and must
// call waited.
func (d *deferrals) next(slot int16) (skip []inventory.Ref, only *inventory.Ref) {
	if d == nil {
		return nil, nil
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for ref, left := range d.variants {
		switch {
		case ref.slot != slot:
		case left.tries >= deferTries && !d.waiting && now.After(left.until):
			d.waiting = true
			return nil, &ref.variant
		case left.tries >= deferTries || now.Before(left.until):
			skip = append(skip, ref.variant)
		}
	}
	return skip, nil
}

// waited ends the wait for the lock of a variant, if only is not nil: claimed
// requests of it were decided, or err ended it. It reports whether the wait
// timed out.
func (d *deferrals) waited(slot int16, only *inventory.Ref, claimed int, err error) (timedOut bool) {
	if only == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = false
	ref := deferredRef{slot, *only}
	left := d.variants[ref]
	switch {
	case left == nil:
	case err == nil && claimed > 0:
		delete(d.variants, ref)
	default:
		left.until = time.Now().Add(deferWait)
		if err == nil { // nothing is left of it, or another drain has it
			left.tries = 0
		}
	}
	return pgerr.IsLockTimeout(err)
}

// record records which variants of a batch were locked, and which were not.
func (d *deferrals) record(slot int16, locked, free map[inventory.Ref]struct{}) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.variants) > 0 {
		for v := range free {
			delete(d.variants, deferredRef{slot, v})
		}
	}
	if len(d.variants)+len(locked) > deferredMax {
		maps.DeleteFunc(d.variants, func(_ deferredRef, left *deferral) bool { return now.Sub(left.until) > staleAfter })
	}
	for v := range locked {
		ref := deferredRef{slot, v}
		left := d.variants[ref]
		if left == nil || now.Sub(left.until) > staleAfter {
			if left == nil && len(d.variants) >= deferredMax {
				continue
			}
			if d.variants == nil {
				d.variants = make(map[deferredRef]*deferral)
			}
			left = &deferral{}
			d.variants[ref] = left
		}
		left.until = now.Add(min(deferFirst<<min(left.tries, 10), deferMax))
		left.tries++
	}
}
