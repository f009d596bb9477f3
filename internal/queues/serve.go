package queues

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
)

// idleDrains is after how many drains in a row that found nothing this process
// assumes that another one drains the slot.
const idleDrains = 8

// stream is a slot as this process serves it.
type stream struct {
	slot   int16
	tenant atomic.Pointer[uuid.UUID] // the tenant of the last decided request; nil: unknown, or several tenants
	work   chan struct{}             // there may be work; capacity 1
	owned  atomic.Bool               // this process decided requests of it last, as far as it knows
	locked atomic.Int32              // how many drains in a row found its stock locked during their whole wait
}

// Wake has a slot drained soon. It does not wait. It reports false, having done
// nothing, if the process does not serve the slot or the lane does not run.
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
	signal(s.work)
	signal(l.changed)
	return true
}

// owns reports whether this process, as far as it knows, drained the slot last.
func (l *Lane) owns(slot int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.streams[slot]
	return s != nil && s.owned.Load()
}

// signal sends a token to a channel of capacity 1, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run serves the lane until ctx ends. It drains a slot when a wake comes
// (Wake), and each TickEvery drains the slots that have work whether a wake
// came or not. It offers units to those that wait in line, retries isolated
// requests, records the rate, and publishes
// the load of all lanes while there are changes (Load). When ctx ends it begins
// no further transaction, and cancels those under way after StopTimeout.
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
	if l.traits.offers {
		serving.Go(func() { l.followOffers(ctx, work) })
	}
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
	_ = l.drain.recordRate(work) // of measurement only, and the database may be what ended the work
	return nil
}

// Ticked returns when the last tick of Run ended, with an error or not, or when
// Run began; the zero time before that.
func (l *Lane) Ticked() time.Time {
	at := l.ticked.Load()
	if at == 0 {
		return time.Time{}
	}
	return time.Unix(0, at)
}

// dispatch wakes the slots that have work.
func (l *Lane) dispatch(ctx context.Context) error {
	slots, retries, err := l.due(ctx)
	for _, slot := range slots {
		l.Wake(slot)
	}
	if retries {
		signal(l.retries)
	}
	return errors.Join(err, l.drain.recordRate(ctx))
}

// follow drains a stream whenever there may be work, until ctx ends. Its
// transactions end when work does.
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
			idle++
			if idle >= idleDrains {
				s.owned.Store(false) // the process that drains the slot comes first
			}
		}
		wait := time.Duration(0)
		again = errors.Is(err, lanes.ErrBusy) && !again
		switch {
		case again:
			// Perhaps no other worker was notified, because this one drained
			// the slot last, or the transaction that has it only moves the mark
			// (Direct).
			s.owned.Store(false)
			wait = blockedMax
		case errors.Is(err, lanes.ErrBusy):
			continue // the process that has it was notified too
		case err != nil:
			if ctx.Err() == nil {
				l.log.WarnContext(ctx, "a drain failed; the tick tries again", "slot", s.slot, "error", err)
			}
			continue
		case report.locked != nil:
			if l.watch.wait(ctx, *report.locked) != nil {
				return
			}
		case report.Throttled:
			wait = throttledWait
		case report.More && report.Claimed == 0:
			empty++
			wait = blockedPause(empty)
		case report.More:
			empty = 0
		default:
			empty = 0
			continue
		}
		if sleep.For(ctx, wait) != nil {
			return
		}
		signal(s.work) // for another drain at this slot, or this one
	}
}

// followRetries retries isolated requests whenever some are due, until ctx
// ends.
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
			signal(l.retries)
		}
		if report.Retried > 0 {
			signal(l.changed)
		}
	}
}

// followLoad publishes the load after each change, until ctx ends. It waits for
// publishEvery first, so that one count covers many changes, and again while
// the last count is too recent or another process counts.
func (l *Lane) followLoad(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
		}
		published, err := false, error(nil)
		for !published && err == nil && sleep.For(ctx, publishEvery) == nil {
			published, err = l.load.Publish(ctx, publishEvery)
		}
		if err != nil && ctx.Err() == nil {
			l.log.WarnContext(ctx, "the load was not published; the next change tries again", "error", err)
		}
	}
}

// dueSQL returns the slots of a lane that have queued requests above their
// mark, have variants between the lanes, or have a mark that the sequence is
// behind. It also returns the slot -1 if an isolated retry is due. A paused
// lane has no work.
//
// It reads the first 50 requests above a mark. If all of these are finished, a
// drain finds out whether another one is queued. OFFSET 0 keeps the planner from
// reading the whole lane for a retry.
const dueSQL = `
SELECT s.slot
FROM ` + lanes.Slots + ` s
WHERE s.lane = $1
  AND NOT EXISTS (SELECT FROM ` + lanes.Controls + ` control WHERE control.lane = $1 AND control.paused)
  AND ((SELECT bool_or(first.status = 'queued') OR count(*) = 50
        FROM (SELECT r.status
              FROM reservation_requests r
              WHERE r.lane = s.lane AND r.slot = s.slot AND r.sequence > s.low_water
              ORDER BY r.sequence
              LIMIT 50) first)
       OR s.lane = 'hot' AND EXISTS (SELECT FROM hot_variants h WHERE h.slot = s.slot AND h.state <> 'hot')
       OR s.low_water > (` + lanes.DrawnSQL + `))
UNION ALL
(SELECT -1
 FROM (SELECT lane, status, claim_expires_at, updated_at FROM reservation_requests WHERE ` + retried + ` OFFSET 0) r
 WHERE r.lane = $1 AND ` + requestrows.ClaimLapsed + `
 LIMIT 1)`

// due reads which slots of this process have work, and whether isolated retries
// are due.
func (l *Lane) due(ctx context.Context) (own []int16, retries bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, err := l.drain.db.Query(ctx, dueSQL, l.name)
	if err != nil {
		return nil, false, fmt.Errorf("read the slots of lane %s: %w", l.name, err)
	}
	slots, err := pgx.CollectRows(rows, pgx.RowTo[int16])
	if err != nil {
		return nil, false, fmt.Errorf("read the slots of lane %s: %w", l.name, err)
	}
	for _, slot := range slots {
		switch {
		case slot < 0:
			retries = true
		case l.Serves(slot):
			own = append(own, slot)
		}
	}
	return own, retries, nil
}
