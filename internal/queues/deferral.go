package queues

import (
	"maps"
	"sync"
	"time"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/requests"
)

const (
	// deferFirst is how long requests are deferred when a row that they depend
	// on is found locked. It doubles each further time, up to deferMax.
	deferFirst = 2 * time.Millisecond
	deferMax   = 64 * time.Millisecond
	// deferTries is the number of times in a row after which a drain of the
	// normal lane waits for the lock of a stock, about a second after the first.
	deferTries = 20
	// deferWait is how long it waits. A drain of the hot lane waits no longer
	// either.
	deferWait = time.Second
	// deferredMax bounds what is deferred. What no drain has found locked for
	// staleAfter is removed.
	deferredMax = 1000
	staleAfter  = 10 * time.Second
)

// deferrals are the requests of a lane that depended on a row which another
// transaction had locked when this process tried them: the requests for a
// variant, if it was the stock, or those of one cart for the variant, if it was
// a hold. They are deferred briefly, so that the other requests of a batch do
// not wait for them. Both lanes use it. A drain of the hot lane waits for its
// stock, so it defers carts only.
//
// A stock that is always locked, as by checkouts that follow each other, would
// never be found free. So after deferTries, one drain of the process at a time
// waits for the lock, for the requests of that variant alone. No drain waits for
// a hold. It is safe for concurrent use.
type deferrals struct {
	mu      sync.Mutex
	skips   map[deferredSkip]*deferral
	waiting bool // a drain waits for a lock
}

// deferredSkip is what the claims of a slot leave out.
type deferredSkip struct {
	slot int16
	requestrows.Skip
}

type deferral struct {
	tries int
	until time.Time
}

// next returns what the next claim at a slot must skip. If only is not nil, the
// drain claims only that variant and waits for its stock, and must call waited.
func (d *deferrals) next(slot int16) (skip []requestrows.Skip, only *inventory.Ref) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, left := range d.skips {
		waits := left.tries >= deferTries && key.CartID == ""
		switch {
		case key.slot != slot:
		case waits && !d.waiting && now.After(left.until):
			d.waiting = true
			return nil, &key.Ref
		case waits || now.Before(left.until):
			skip = append(skip, key.Skip)
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
	key := deferredSkip{slot, requestrows.Skip{Ref: *only}}
	left := d.skips[key]
	switch {
	case left == nil:
	case err == nil && claimed > 0:
		delete(d.skips, key)
	default:
		left.until = time.Now().Add(deferWait)
		if err == nil { // nothing is left of it, or another drain has it
			left.tries = 0
		}
	}
	return pg.IsLockTimeout(err)
}

// record records what a batch left because of a lock, and what it decided.
func (d *deferrals) record(slot int16, left map[requestrows.Skip]struct{}, decided []requests.Request) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.skips) > 0 {
		for i := range decided {
			free := requestrows.Skip{Ref: variantOf(&decided[i])}
			delete(d.skips, deferredSkip{slot, free})
			free.CartID = decided[i].CartID
			delete(d.skips, deferredSkip{slot, free})
		}
	}
	if len(d.skips)+len(left) > deferredMax {
		maps.DeleteFunc(d.skips, func(_ deferredSkip, left *deferral) bool { return now.Sub(left.until) > staleAfter })
	}
	for skip := range left {
		key := deferredSkip{slot, skip}
		left := d.skips[key]
		if left == nil || now.Sub(left.until) > staleAfter {
			if left == nil && len(d.skips) >= deferredMax {
				continue
			}
			if d.skips == nil {
				d.skips = make(map[deferredSkip]*deferral)
			}
			left = &deferral{}
			d.skips[key] = left
		}
		left.until = now.Add(min(deferFirst<<min(left.tries, 10), deferMax))
		left.tries++
	}
}
