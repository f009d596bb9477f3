package queues

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/requests"
)

// idleDrains is after how many drains in a row that found nothing a slot counts as drained by other processes.
const idleDrains = 8

// stream is a slot as this process serves it.
type stream struct {
	slot   int16
	tenant atomic.Pointer[uuid.UUID] // whose requests were decided last; nil: unknown, or of several tenants
	work   chan struct{}             // there may be work; capacity 1
	owned  atomic.Bool               // this process decided requests of it, and has not found it leased since
}

// Wake has a slot drained soon, if the process serves it and the lane runs. It never waits. It reports whether it has.
func (l *Lane) Wake(slot int16) bool {
	if !l.Serves(slot) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.start == nil {
		return false
	}
	s := l.streams[slot]
	if s == nil {
		s = &stream{slot: slot, work: make(chan struct{}, 1)}
		l.streams[slot] = s
		l.start(s)
	}
	ring(s.work)
	ring(l.changed)
	return true
}

// owns reports whether this process, as far as it knows, drained the slot last.
func (l *Lane) owns(slot int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.streams[slot]
	return s != nil && s.owned.Load()
}

// ring puts a token into a channel of capacity 1, unless there is one.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run serves the lane until ctx ends: it drains a slot when a wake comes (Wake), and each TickEvery those that have
// work whether a wake came or not; it tries isolated requests again, notes the rate, and publishes the load of all
// lanes while it has work (Load). When ctx ends it begins no further transaction, and cuts those under way after
// StopTimeout.
func (l *Lane) Run(ctx context.Context) error {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var serving sync.WaitGroup
	l.mu.Lock()
	l.start = func(s *stream) {
		for range l.drainsAt(s.slot) {
			serving.Go(func() { l.follow(ctx, work, s) })
		}
	}
	l.mu.Unlock()
	serving.Go(func() { l.followRetries(ctx, work) })
	serving.Go(func() { l.followLoad(ctx) })
	l.ticked.Store(time.Now().UnixNano())
	tick := time.NewTicker(l.config.TickEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := l.dispatch(ctx); err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "a tick failed; the next one tries again", "error", err)
		}
		l.ticked.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	l.mu.Lock()
	l.start, l.streams = nil, make(map[int16]*stream)
	l.mu.Unlock()
	defer time.AfterFunc(l.config.StopTimeout, cut).Stop()
	serving.Wait()
	_ = l.drain.noteRate(work) // of measurement only, and the database may be what ended the work
	return nil
}

// Ticked returns when the last tick of Run ended, with an error or not, or when Run began; the zero time before that.
func (l *Lane) Ticked() time.Time {
	at := l.ticked.Load()
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}

// dispatch wakes the slots that have work.
func (l *Lane) dispatch(ctx context.Context) error {
	due, err := l.due(ctx)
	for _, slot := range due.slots {
		l.Wake(slot)
	}
	if due.retries {
		ring(l.retries)
	}
	return errors.Join(err, l.drain.noteRate(ctx))
}

// follow drains a stream whenever there may be work, until ctx ends. Transactions end with work.
func (l *Lane) follow(ctx, work context.Context, s *stream) {
	for empty, idle, again := 0, 0, false; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			return
		case <-s.work:
		}
		report, err := l.batch(ctx, work, s)
		switch {
		case report.Claimed > 0:
			idle = 0
			s.owned.Store(true)
		case err == nil:
			if idle++; idle >= idleDrains {
				s.owned.Store(false) // others come first
			}
		}
		wait := time.Duration(0)
		again = errors.Is(err, ErrBusy) && !again
		switch {
		case again:
			// Perhaps no other worker was notified, because this one drained the slot last, or the transaction that has it only
			// moves the mark (Direct).
			s.owned.Store(false)
			wait = blockedMax
		case errors.Is(err, ErrBusy):
			continue // the process that has it was notified too
		case err != nil:
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "a drain failed; the tick tries again", "slot", s.slot, "error", err)
			}
			continue
		case report.Throttled:
			wait = throttledWait
		case report.More && report.Claimed == 0:
			empty++
			wait = blockedFor(empty)
		case report.More:
			empty = 0
		default:
			empty = 0
			continue
		}
		if pause(ctx, wait) != nil {
			return
		}
		ring(s.work) // for another drain at this slot, or this one
	}
}

// followRetries tries isolated requests again whenever some are due, until ctx ends.
func (l *Lane) followRetries(ctx, work context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.retries:
		}
		report, err := l.retry(work)
		switch {
		case err != nil && work.Err() == nil:
			l.log.WarnContext(ctx, "an isolated retry failed; the tick tries again", "error", err)
		case report.More:
			ring(l.retries)
		}
		if report.Careful > 0 {
			ring(l.changed)
		}
	}
}

// followLoad publishes the load after each change, until ctx ends. It waits for publishEvery first, so that one count
// covers many changes, and again while the last count is too recent or another process counts.
func (l *Lane) followLoad(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		published, err := false, error(nil)
		for !published && err == nil && pause(ctx, publishEvery) == nil {
			published, err = l.load.Publish(ctx, publishEvery)
		}
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "the load was not published; the next change tries again", "error", err)
		}
	}
}

// due is what has work.
type due struct {
	slots   []int16
	retries bool
}

// dueSQL returns the slots of a lane with queued requests above their mark, or with variants between the lanes, or with a
// mark that the sequence is behind; and the slot -1 if an isolated retry is due. A paused lane has no work.
const dueSQL = `
SELECT s.slot
FROM lane_slots s
WHERE s.lane = $1 AND s.slot >= 0
  AND NOT EXISTS (SELECT FROM lane_slots control WHERE control.lane = $1 AND control.slot = -1 AND control.paused)
  AND (EXISTS (SELECT FROM reservation_requests r
               WHERE r.lane = s.lane AND r.slot = s.slot AND r.sequence > s.low_water AND r.status = 'queued')
       OR s.lane = 'hot' AND EXISTS (SELECT FROM hot_variants h WHERE h.slot = s.slot AND h.state <> 'hot')
       OR s.low_water > (` + requests.DrawnSQL + `))
UNION ALL
(SELECT -1 FROM reservation_requests r WHERE r.lane = $1 AND ` + requests.ClaimLapsed + ` LIMIT 1)`

// due reads which slots of this process have work.
func (l *Lane) due(ctx context.Context) (d due, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	slots, err := slotsBy(ctx, l.drain.db, dueSQL, l.name)
	for _, slot := range slots {
		switch {
		case slot < 0:
			d.retries = true
		case l.Serves(slot):
			d.slots = append(d.slots, slot)
		}
	}
	return d, err
}
