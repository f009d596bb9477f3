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
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/requests"
)

const (
	// breakAfter is how many requests in a row fail individually, with one error, before a circuit breaker opens.
	breakAfter = 5
	// probeFirst is the wait before the first probe of an open breaker, doubled after each that fails up to probeMax.
	probeFirst = 50 * time.Millisecond
	probeMax   = 5 * time.Second
	// idleMax is how long a variant's breaker stays open after the last failure: nothing may be left to fail.
	idleMax = 10 * time.Minute
	// skippedMax bounds the variants with an open breaker, ownMax the poison requests that are remembered.
	skippedMax = 100
	ownMax     = 1000
)

// breaker is the circuit breaker of a lane in one process (M. Nygard, Release It!). It distinguishes poison requests, which
// fail while others are decided, from an error that fails every request, as a wrong constraint does. For the first,
// isolating one request after the other is right. For the second, it would end every accepted request as failed.
//
// breakAfter requests that fail individually with one error, none being decided in between, open the breaker of their
// variant, or that of the lane if they are of several. An open variant's requests are not claimed, and an open lane claims
// nothing, except for probes; their attempts do not count. The first request that is decided closes the breaker, and those
// that failed before it are poison. It is safe for concurrent use.
type breaker struct {
	mu      sync.Mutex
	streak  streak
	lane    *probe // nil: closed
	skipped map[inventory.Ref]*probe
	own     map[uuid.UUID]struct{} // poison: others were decided after they had failed
}

// streak is the requests that failed individually in a row, with one cause.
type streak struct {
	cause  cause
	failed map[uuid.UUID]inventory.Ref
	// granted: all of them were going to be held. A constraint on holds lets rejections pass, which prove nothing about it.
	granted bool
}

// variants are those of the streak.
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
	return cause{code: pgerr.Code(err), constraint: pgerr.Constraint(err)}
}

// probe is when an open breaker lets how many requests pass next.
type probe struct {
	slot           int16 // of the variant
	opened, failed time.Time
	granted        bool
	at             time.Time
	wait           time.Duration
	limit          int
	sent           bool                   // a probe is under way
	past           bool                   // the lane's next probe looks past the failing variants
	requests       map[uuid.UUID]struct{} // of the variant, that failed
}

func newProbe(slot int16, granted bool) *probe {
	now := time.Now()
	return &probe{slot: slot, granted: granted, opened: now, failed: now, at: now.Add(probeFirst), wait: probeFirst, limit: 1}
}

// begin reports whether a probe is due, and puts the next one off.
func (p *probe) begin() bool {
	now := time.Now()
	if now.Before(p.at) {
		return false
	}
	p.at, p.sent = now.Add(p.wait), true
	return true
}

// fail notes that a request failed, of the probe that is under way or of an isolated retry.
func (p *probe) fail() {
	p.failed = time.Now()
	if p.sent {
		p.wait = min(2*p.wait, probeMax)
		p.at, p.limit, p.past, p.sent = p.failed.Add(p.wait), 1, !p.past, false
	}
}

// reject notes that a request was rejected, which proves nothing: more of them may pass at once.
func (p *probe) reject() {
	p.at, p.limit, p.past, p.sent = time.Now(), min(2*p.limit, 1<<20), false, false
}

// empty notes that the probe claimed nothing. It reports whether it looked past the failing variants.
func (p *probe) empty() (past bool) {
	past = p.past
	p.at, p.past, p.sent = time.Now(), false, false
	return past
}

// claim returns how many requests to claim at the slot, at most n, and which variants to leave out.
func (b *breaker) claim(slot int16, n int) (limit int, skip []inventory.Ref) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lane != nil {
		if !b.lane.begin() {
			return 0, nil
		}
		if b.lane.past {
			for v := range b.streak.variants() {
				skip = append(skip, v)
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
			skip = append(skip, v)
		}
	}
	return n, skip
}

// broken reports whether the lane's breaker is open.
func (b *breaker) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lane != nil
}

// anyOpen reports whether the lane's breaker is open, or a variant's.
func (b *breaker) anyOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lane != nil || len(b.skipped) > 0
}

// poison reports whether others were decided after the request had failed.
func (b *breaker) poison(id uuid.UUID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, own := b.own[id]
	return own
}

// forget drops a request that is finished.
func (b *breaker) forget(id uuid.UUID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.own, id)
}

// fail records that a request, going to be held or not, failed individually. counts: the attempt is one of its own. opens:
// it opened a breaker, the variant's or the lane's.
func (b *breaker) fail(r requests.Request, c cause, granted bool) (counts bool, opens string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, own := b.own[r.RequestID]; own {
		return true, ""
	}
	if b.lane != nil {
		b.lane.fail()
		b.streak.failed[r.RequestID] = variantOf(&r)
		return false, ""
	}
	if p := b.skipped[variantOf(&r)]; p != nil {
		p.fail()
		p.requests[r.RequestID] = struct{}{}
		return false, ""
	}
	if b.streak.failed == nil || b.streak.cause != c {
		b.streak = streak{cause: c, failed: make(map[uuid.UUID]inventory.Ref), granted: true}
	}
	b.streak.failed[r.RequestID] = variantOf(&r)
	b.streak.granted = b.streak.granted && granted
	if len(b.streak.failed) < breakAfter {
		return true, ""
	}
	if len(b.streak.variants()) > 1 {
		b.lane = newProbe(r.Slot, b.streak.granted)
		b.lane.past = true
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

func (b *breaker) addOwn(id uuid.UUID) {
	if b.own == nil || len(b.own) >= ownMax {
		b.own = make(map[uuid.UUID]struct{})
	}
	b.own[id] = struct{}{}
}

// empty notes that a claim found nothing. It reports whether the lane's next probe may find something here.
func (b *breaker) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lane != nil && b.lane.empty()
}

// pass records that requests were decided; reasons are empty for those that were granted. It returns for how long each
// breaker was open that it closed.
func (b *breaker) pass(decided []requests.Request, reasons []requests.Reason) (closed []time.Duration) {
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
				b.addOwn(id)
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
			b.addOwn(id)
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

// failed records a request that failed individually, and reports whether the attempt counts as one of its own.
func (d *Drain) failed(ctx context.Context, r requests.Request, report Report, err error) bool {
	c := causeOf(err)
	counts, opens := d.breaker.fail(r, c, report.Held > 0)
	if opens != "" {
		d.log.ErrorContext(ctx, "several requests in a row failed with one error: those of their variant, or of the lane, stay queued until one is decided",
			"breaker", opens, "tenant_id", r.TenantID, "variant_id", r.VariantID, "sqlstate", c.code, "constraint", c.constraint, "error", err)
		telemetry.BreakerOpened(ctx, d.lane, 1)
	}
	return counts
}

// passed records what a committed transaction decided.
func (d *Drain) passed(ctx context.Context, decided []requests.Request, reasons []requests.Reason) {
	for _, open := range d.breaker.pass(decided, reasons) {
		d.log.WarnContext(ctx, "a request was decided: those that had stopped go on", "stopped_seconds", open.Seconds())
		telemetry.BreakerOpened(ctx, d.lane, -1)
	}
}

// givesUp reports whether a request that used up its attempts ends as failed: others were decided since it failed, or there
// are too few in isolated retry, in all processes, for an error that hits all of them.
func (d *Drain) givesUp(ctx context.Context, r requests.Request) (bool, error) {
	if d.breaker.poison(r.RequestID) {
		return true, nil
	}
	n, err := requests.CountRetried(ctx, d.db, d.lane, breakAfter)
	return n < breakAfter, err
}
