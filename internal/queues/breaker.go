package queues

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
)

const (
	// breakAfter is how many requests in a row fail individually, with one
	// error, before a circuit breaker opens.
	breakAfter = 5
	// probeFirst is the wait before the first probe of an open breaker. It
	// doubles after each probe that fails, up to probeMax.
	probeFirst = 50 * time.Millisecond
	probeMax   = 5 * time.Second
	// idleMax is how long a variant's breaker stays open after the last
	// failure: the variant may have no request left.
	idleMax = 10 * time.Minute
	// othersTurn is how long a probe that skips the failing variants is left to
	// the slots of other variants. It is longer than a tick.
	othersTurn = 2 * time.Second
	// skippedMax bounds the variants with an open breaker, poisonMax the poison
	// requests that are recorded.
	skippedMax = 100
	poisonMax  = 1000
)

// breaker is the circuit breaker of a lane in one process (M. Nygard, Release
// It!). It distinguishes poison requests, which fail while others are decided,
// from an error that fails every request, such as a wrong constraint. Poison
// requests are isolated one after the other. With an error that fails every
// request, isolation would end every accepted request as failed.
//
// The breaker of a variant opens when breakAfter of its requests fail
// individually with one error and none is decided in between. If the requests
// are of several variants, the breaker of the lane opens. The requests of an
// open variant are not claimed, and an open lane claims nothing, except for
// probes. Their attempts do not count, unless they are older than AgeMax.
//
// The first request that is decided closes the breaker, and the requests that
// failed before it are poison. It is safe for concurrent use.
type breaker struct {
	// oneVariant is that of the lane: a slot has no request left if its variant
	// is skipped.
	oneVariant bool

	mu      sync.Mutex
	streak  streak
	lane    *probe // nil: closed
	skipped map[inventory.Ref]*probe
	poison  map[uuid.UUID]struct{} // poison: others were decided after they had failed
}

// streak is the requests that failed individually in a row, for one cause.
type streak struct {
	cause  cause
	failed map[uuid.UUID]inventory.Ref
	slots  map[int16]struct{} // of the failed requests
	// granted means that all of them were going to be held. A constraint on
	// holds does not affect rejections, so a rejection proves nothing about it.
	granted bool
}

func (s *streak) add(r *requests.Request) {
	s.failed[r.RequestID] = variantOf(r)
	s.slots[r.Slot] = struct{}{}
}

// variants returns the variants of the streak.
func (s *streak) variants() map[inventory.Ref]struct{} {
	set := make(map[inventory.Ref]struct{})
	for _, v := range s.failed {
		set[v] = struct{}{}
	}
	return set
}

// cause is what failures of one origin have in common.
type cause struct{ code, constraint string }

func causeOf(err error) cause {
	if p, ok := errors.AsType[*panicError](err); ok {
		return cause{code: fmt.Sprint("panic: ", p.value)}
	}
	return cause{code: pg.Code(err), constraint: pg.Constraint(err)}
}

// probe is the schedule of an open breaker: when the next requests are claimed,
// and how many.
type probe struct {
	slot           int16 // of the variant
	opened, failed time.Time
	granted        bool
	at             time.Time
	wait           time.Duration
	limit          int
	sent           bool                   // a probe is under way
	skipFailing    bool                   // the lane's next probe skips the failing variants
	requests       map[uuid.UUID]struct{} // of the variant, that failed
}

func newProbe(slot int16, granted bool) *probe {
	now := time.Now()
	return &probe{slot: slot, granted: granted, opened: now, failed: now, at: now.Add(probeFirst), wait: probeFirst, limit: 1}
}

// begin reports whether a probe is due, and schedules the next one.
func (p *probe) begin() bool {
	now := time.Now()
	if now.Before(p.at) {
		return false
	}
	p.at, p.sent = now.Add(p.wait), true
	return true
}

// recordFailure records that a request failed: one of the probe under way, or
// an isolated retry.
func (p *probe) recordFailure() {
	p.failed = time.Now()
	if p.sent {
		p.wait = min(2*p.wait, probeMax)
		p.at, p.limit, p.skipFailing, p.sent = p.failed.Add(p.wait), 1, !p.skipFailing, false
	}
}

// reject records that a request was rejected. That proves nothing, so the next
// probe is due at once and may claim twice as many.
func (p *probe) reject() {
	p.at, p.limit, p.skipFailing, p.sent = time.Now(), min(2*p.limit, 1<<20), false, false
}

// recordEmpty records that the probe claimed nothing. It reports whether the
// probe skipped the failing variants.
func (p *probe) recordEmpty() (skipped bool) {
	skipped = p.skipFailing
	p.at, p.skipFailing, p.sent = time.Now(), false, false
	return skipped
}

// claimLimit returns how many requests to claim at the slot, at most n, and
// which variants to leave out.
func (b *breaker) claimLimit(slot int16, n int) (limit int, skip []requestrows.Skip) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lane != nil {
		if _, failing := b.streak.slots[slot]; failing && b.oneVariant && b.lane.skipFailing {
			if time.Since(b.lane.at) < othersTurn {
				return 0, nil
			}
			b.lane.skipFailing = false
		}
		if !b.lane.begin() {
			return 0, nil
		}
		if b.lane.skipFailing {
			for v := range b.streak.variants() {
				skip = append(skip, requestrows.Skip{Ref: v})
			}
		}
		return min(n, b.lane.limit), skip
	}
	for v, p := range b.skipped {
		switch {
		case p.slot != slot:
		case p.begin():
			n = min(n, p.limit)
		default:
			skip = append(skip, requestrows.Skip{Ref: v})
		}
	}
	return n, skip
}

// laneOpen reports whether the lane's breaker is open.
func (b *breaker) laneOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lane != nil
}

// anyOpen reports whether the breaker of the lane or of a variant is open.
func (b *breaker) anyOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lane != nil || len(b.skipped) > 0
}

// isPoison reports whether other requests were decided after the request had
// failed.
func (b *breaker) isPoison(id uuid.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, poison := b.poison[id]
	return poison
}

// forget drops a request that is finished.
func (b *breaker) forget(id uuid.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.poison, id)
}

// recordFailure records that a request failed individually; granted means that
// it was going to be held. counts reports whether the attempt counts against
// the request. opens names the breaker that it opened, "variant" or "lane", or
// is empty.
func (b *breaker) recordFailure(r requests.Request, c cause, granted bool) (counts bool, opens string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, poison := b.poison[r.RequestID]; poison {
		return true, ""
	}
	if b.lane != nil {
		b.lane.recordFailure()
		b.streak.add(&r)
		return false, ""
	}
	if p := b.skipped[variantOf(&r)]; p != nil {
		p.recordFailure()
		p.requests[r.RequestID] = struct{}{}
		return false, ""
	}
	if b.streak.failed == nil || b.streak.cause != c {
		b.streak = streak{cause: c, failed: make(map[uuid.UUID]inventory.Ref), slots: make(map[int16]struct{}), granted: true}
	}
	b.streak.add(&r)
	b.streak.granted = b.streak.granted && granted
	if len(b.streak.failed) < breakAfter {
		return true, ""
	}
	if len(b.streak.variants()) > 1 {
		b.lane = newProbe(r.Slot, b.streak.granted)
		b.lane.skipFailing = true
		return false, "lane"
	}
	if b.skipped == nil {
		b.skipped = make(map[inventory.Ref]*probe)
	}
	if len(b.skipped) >= skippedMax {
		return true, ""
	}
	p := newProbe(r.Slot, b.streak.granted)
	p.requests = make(map[uuid.UUID]struct{})
	for id := range b.streak.failed {
		p.requests[id] = struct{}{}
	}
	b.skipped[variantOf(&r)] = p
	b.streak = streak{}
	return false, "variant"
}

func (b *breaker) addPoison(id uuid.UUID) {
	if b.poison == nil || len(b.poison) >= poisonMax {
		b.poison = make(map[uuid.UUID]struct{})
	}
	b.poison[id] = struct{}{}
}

// recordEmpty records that a claim found nothing. It reports whether the lane's
// next probe may find something.
func (b *breaker) recordEmpty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lane != nil && b.lane.recordEmpty()
}

// recordDecided records that requests were decided; reasons are empty for those
// that were granted. It returns how long each breaker that it closed was open.
func (b *breaker) recordDecided(decided []requests.Request, reasons []requests.Reason) (closed []time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.streak.failed) == 0 && len(b.skipped) == 0 {
		return nil
	}
	evidence := false
	for i := range decided {
		granted := reasons[i] == ""
		evidence = evidence || granted || !b.streak.granted
		p := b.skipped[variantOf(&decided[i])]
		switch {
		case p == nil:
		case granted || !p.granted:
			closed = append(closed, time.Since(p.opened))
			delete(b.skipped, variantOf(&decided[i]))
			for id := range p.requests {
				b.addPoison(id)
			}
		default:
			p.reject()
		}
	}
	for v, p := range b.skipped {
		if time.Since(p.failed) > idleMax {
			closed = append(closed, time.Since(p.opened))
			delete(b.skipped, v)
		}
	}
	switch {
	case evidence:
		for id := range b.streak.failed {
			b.addPoison(id)
		}
		b.streak = streak{}
		if b.lane != nil {
			closed = append(closed, time.Since(b.lane.opened))
			b.lane = nil
		}
	case b.lane != nil && len(decided) > 0:
		b.lane.reject()
	}
	return closed
}

func variantOf(r *requests.Request) inventory.Ref {
	return inventory.Ref{TenantID: r.TenantID, VariantID: r.VariantID}
}

// recordFailure records a request that failed individually, and reports whether
// the attempt counts against it.
func (d *Drain) recordFailure(ctx context.Context, r requests.Request, report Report, err error) bool {
	c := causeOf(err)
	counts, opens := d.breaker.recordFailure(r, c, report.Held > 0)
	if opens != "" {
		d.log.ErrorContext(ctx, "several requests in a row failed with one error; the requests of their variant, or of the lane, stay queued until one is decided",
			"breaker", opens, "tenant_id", r.TenantID, "variant_id", r.VariantID, "sqlstate", c.code, "constraint", c.constraint, "error", err)
		telemetry.BreakerOpened(ctx, string(d.lane), 1)
	}
	return counts
}

// recordDecided records what a committed transaction decided.
func (d *Drain) recordDecided(ctx context.Context, decided []requests.Request, reasons []requests.Reason) {
	for _, open := range d.breaker.recordDecided(decided, reasons) {
		d.log.WarnContext(ctx, "a request was decided; the breaker is closed", "stopped_seconds", open.Seconds())
		telemetry.BreakerOpened(ctx, string(d.lane), -1)
	}
}

// endsAsFailed reports whether a request that used up its attempts ends as
// failed. It does if other requests were decided since it failed, or if too few
// requests of the lane are unfinished, in all processes, to indicate an error
// that fails all of them.
//
// It also does if the request is too old. It would then be rejected, and an
// error that fails even the rejection must not keep it unfinished: the variant
// may have no other request, or another process may decide all of them.
//
// Queued requests count: while they are neither decided nor known to fail,
// there is no evidence for either. A busy machine may need longer to isolate
// breakAfter of them than one request needs for all its attempts.
func (d *Drain) endsAsFailed(ctx context.Context, r requests.Request) (bool, error) {
	if d.breaker.isPoison(r.RequestID) || d.isTooOld(&r, r.UpdatedAt) {
		return true, nil
	}
	n, err := requestrows.CountUnfinished(ctx, d.db, d.lane, breakAfter)
	return n < breakAfter, err
}
