package queues

import (
	"maps"
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
	// deferWait is how long it is waited for. A drain of the hot lane waits for no longer either.
	deferWait = time.Second
	// deferredMax bounds the variants that are left, and staleAfter is when one is forgotten that no drain found since.
	deferredMax = 1000
	staleAfter  = 10 * time.Second
)

// deferrals are variants of the normal lane whose stocks other transactions had locked when this process tried them: their
// requests are left for a moment, so that the others of a batch do not wait for them. A stock that is always locked, as by
// checkouts that follow each other, would never be found free: after some tries its lock is waited for, by one drain of the
// process at a time and for the requests of that variant alone. It is safe for concurrent use; a nil one leaves nothing.
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

// next returns which variants to leave out of the next claim at a slot. only, if not nil, is the one to claim and wait for
// instead; then waited must follow.
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

// waited ends the wait for the lock of a variant, if only is not nil: claimed requests of it were decided, or err ended it.
// It reports whether the lock was not granted in time.
func (d *deferrals) waited(slot int16, only *inventory.Ref, claimed int, err error) (inVain bool) {
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

// note records which variants of a batch were locked, and which were not.
func (d *deferrals) note(slot int16, locked, free map[inventory.Ref]struct{}) {
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
