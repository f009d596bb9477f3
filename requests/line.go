package requests

import (
	"slices"
	"sync"

	"github.com/google/uuid"
)

// line is where callers stand before admission: first come, first served within a tenant, while the tenants take turns,
// so one tenant's crowd costs another one's caller a turn and not the crowd's whole length.
//
// It has twice max places. A tenant finds one while it has fewer callers in the line than there are places free: alone it
// fills max of them, two crowds take a third each, and there is always a place for who has nobody in the line yet.
type line struct {
	mu     sync.Mutex
	filled sync.Cond
	places int
	length int
	closed bool
	queues map[uuid.UUID]*queue // of the tenants in the line
	turns  []*queue             // the same; whose turn is next comes first
	spare  *queue               // for the next tenant to come
}

// queue is what one tenant has in the line.
type queue struct {
	tenant  uuid.UUID
	members []*member
	head    int
}

func (q *queue) length() int { return len(q.members) - q.head }

// turn is how many callers a tenant has served in a row while others wait.
const turn = 8

func newLine(limit int) *line {
	l := &line{places: 2 * limit, queues: make(map[uuid.UUID]*queue)}
	l.filled.L = &l.mu
	return l
}

// join lets m stand at the end of its tenant's queue, or says why it can't.
func (l *line) join(m *member) *RefusedError {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return &RefusedError{Why: WhyClosing, RetryAfter: retrySoonest}
	}
	q := l.queues[m.submission.TenantID]
	if q == nil {
		if l.length >= l.places {
			return &RefusedError{Why: WhyLine, RetryAfter: retrySoonest}
		}
		if q, l.spare = l.spare, nil; q == nil {
			q = &queue{}
		}
		q.tenant = m.submission.TenantID
		l.queues[q.tenant] = q
		l.turns = append(l.turns, q)
	} else if n := q.length(); n >= l.places-l.length {
		own := len(l.turns) > 1 && n*len(l.turns) >= l.length // a crowd beside others, not the only one
		return &RefusedError{Own: own, Why: WhyLine, RetryAfter: retrySoonest}
	}
	q.members = append(q.members, m)
	l.length++
	l.filled.Signal()
	return nil
}

// enter has m wait in the line of its lane, or says why it can't.
func (in *Intake) enter(m *member) *RefusedError {
	if refused := in.aside.check(m); refused != nil {
		return refused
	}
	if refused := in.shedder.enter(m); refused != nil {
		return refused
	}
	refused := in.lines[m.lane].join(m)
	if refused != nil {
		in.shedder.leave(m, Request{}, false)
	}
	return refused
}

// answer tells m what came of it, and counts it out.
func (in *Intake) answer(m *member, v View, err error) {
	in.shedder.leave(m, v.Request, err == nil)
	m.answer(v, err)
}

// take waits until somebody stands in the line and takes up to limit of them; nobody if the line is closed and empty.
func (l *line) take(limit int) []*member {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.length == 0 && !l.closed {
		l.filled.Wait()
	}
	group := make([]*member, 0, min(limit, l.length))
	for len(group) < limit && l.length > 0 {
		q := l.turns[0]
		n := min(limit-len(group), q.length())
		if len(l.turns) > 1 {
			n = min(n, turn)
		}
		group = append(group, q.members[q.head:q.head+n]...)
		clear(q.members[q.head : q.head+n])
		q.head += n
		l.length -= n
		l.pass(q)
	}
	if l.length > 0 {
		l.filled.Signal() // for another committer
	}
	return group
}

// pass ends the turn of q, which is the first.
func (l *line) pass(q *queue) {
	if q.length() == 0 {
		q.members, q.head = q.members[:0], 0
		delete(l.queues, q.tenant)
		if l.turns[0] = nil; len(l.turns) == 1 {
			l.turns = l.turns[:0]
		} else {
			l.turns = l.turns[1:]
		}
		if cap(q.members) <= spareMax {
			l.spare = q
		}
		return
	}
	if len(l.turns) > 1 {
		l.turns = append(l.turns[1:], q)
	}
	if q.head >= spareMax {
		q.members, q.head = slices.Delete(q.members, 0, q.head), 0
	}
}

// spareMax is how many places an empty queue keeps, and how many taken ones a long one.
const spareMax = 4096

// close lets nobody join any more.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.filled.Broadcast()
}

// size is how many callers stand in the line.
func (l *line) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.length
}

// present leaves out those whose callers have gone. The others are sent next.
func (in *Intake) present(group []*member) []*member {
	return slices.DeleteFunc(group, func(m *member) bool {
		if m.ctx.Err() != nil {
			m.leave() // unless it was sent before
		}
		gone := !m.send()
		if gone {
			in.answer(m, View{}, m.gone())
		}
		return gone
	})
}
