package queues

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

const (
	// breakAfter is how many requests of a slot that fail individually, with one error and none decided in between,
	// open the slot's circuit breaker.
	breakAfter = 5
	// probeFirst is the wait before the first probe of an open slot, doubled after each that fails up to probeMax.
	probeFirst = 50 * time.Millisecond
	probeMax   = 5 * time.Second
	// ownMax bounds how many poison requests a breaker remembers.
	ownMax = 1000
)

// breaker is a circuit breaker for each slot of a lane (M. Nygard, Release It!). It distinguishes a poison request, which
// fails while others are decided, from an error that fails every request, as a wrong constraint does. Isolating requests
// one after the other is right for the first and would end every accepted request as failed for the second.
//
// An open slot claims one request per probe and no attempt counts, so its requests stay as they are until one is decided,
// which closes the slot. Requests that failed before that are poison. It is safe for concurrent use.
type breaker struct {
	mu    sync.Mutex
	slots map[int16]*streak
	own   map[uuid.UUID]struct{} // failed while others were decided: poison
}

// streak is the requests of a slot that failed with one error since the last one was decided.
type streak struct {
	cause  cause
	failed map[uuid.UUID]struct{}
	// opened is zero while the slot is closed.
	opened, probe time.Time
	wait          time.Duration
}

// cause is what failures of one origin have in common. granted: the request was going to be held. A constraint on holds
// lets rejections pass, so they prove nothing about it.
type cause struct {
	code, constraint string
	granted          bool
}

func causeOf(err error, report Report) cause {
	c := cause{code: pgerr.Code(err), constraint: pgerr.Constraint(err), granted: report.Held > 0}
	if p, ok := errors.AsType[*panicError](err); ok {
		c.code = fmt.Sprint("panic: ", p.value)
	}
	return c
}

// limit returns how many requests to claim next at the slot: n, 1 for a probe, or 0 until the next probe is due.
func (b *breaker) limit(slot int16, n int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slots[slot]
	if s == nil || s.opened.IsZero() {
		return n
	}
	if time.Until(s.probe) > 0 {
		return 0
	}
	s.wait = min(2*s.wait, probeMax)
	s.probe = time.Now().Add(s.wait)
	return 1
}

// open reports whether any slot is open.
func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.slots {
		if !s.opened.IsZero() {
			return true
		}
	}
	return false
}

// fail records that a request failed individually. counts: the attempt is one of the request's own. opens: it was the
// failure that opened the slot.
func (b *breaker) fail(r requests.Request, c cause) (counts, opens bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, poison := b.own[r.RequestID]; poison {
		return true, false
	}
	s := b.slots[r.Slot]
	if s == nil || s.opened.IsZero() && s.cause != c {
		if b.slots == nil {
			b.slots = make(map[int16]*streak)
		}
		s = &streak{cause: c, failed: make(map[uuid.UUID]struct{})}
		b.slots[r.Slot] = s
	}
	s.failed[r.RequestID] = struct{}{}
	if !s.opened.IsZero() {
		return false, false
	}
	if len(s.failed) < breakAfter {
		return true, false
	}
	s.opened, s.wait = time.Now(), probeFirst
	s.probe = s.opened.Add(s.wait)
	return false, true
}

// pass records that requests of the slot were decided. It returns how long the slot was open, 0 if it was closed or stays
// open.
func (b *breaker) pass(slot int16, report Report) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.slots[slot]
	if s == nil || report.Claimed == 0 || s.cause.granted && report.Held == 0 {
		return 0
	}
	if b.own == nil || len(b.own) > ownMax {
		b.own = make(map[uuid.UUID]struct{})
	}
	for id := range s.failed {
		b.own[id] = struct{}{}
	}
	delete(b.slots, slot)
	if s.opened.IsZero() {
		return 0
	}
	return time.Since(s.opened)
}

// forget drops a request that is finished.
func (b *breaker) forget(id uuid.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.own, id)
}

// failed records a request that failed individually, and reports whether the attempt counts as one of its own.
func (d *Drain) failed(ctx context.Context, r requests.Request, report Report, err error) bool {
	c := causeOf(err, report)
	counts, opens := d.breaker.fail(r, c)
	if opens {
		d.log.ErrorContext(ctx, "several requests in a row failed with one error: the slot stays as it is, with its requests queued, until one is decided",
			"slot", r.Slot, "sqlstate", c.code, "constraint", c.constraint, "error", err)
		telemetry.SlotStopped(ctx, d.lane, 1)
	}
	return counts
}

// passed records requests that were decided.
func (d *Drain) passed(ctx context.Context, slot int16, report Report) {
	if open := d.breaker.pass(slot, report); open > 0 {
		d.log.WarnContext(ctx, "a request was decided: the slot goes on", "slot", slot, "stopped_seconds", open.Seconds())
		telemetry.SlotStopped(ctx, d.lane, -1)
	}
}
