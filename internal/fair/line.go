package fair

import (
	"slices"
	"sync"

	"github.com/google/uuid"
)

// Refusal is why a caller can't join a line.
type Refusal int

// What Join reports.
const (
	Joined Refusal = iota
	Closed
	// Full means that the line has no place for the tenant; OwnFull that the tenant itself takes most of them, beside others.
	Full
	OwnFull
)

// Line is where callers wait for a group: first come, first served within a tenant, while the tenants take turns (round
// robin, up to eight in a row), so one tenant's crowd costs another one's caller a turn and not the crowd's whole length.
//
// It has twice max places. A tenant finds one while it has fewer callers in the line than there are places free: alone it
// fills max of them, two crowds take a third each, and there is always a place for a tenant that has none in the line yet.
type Line[T any] struct {
	mu     sync.Mutex
	filled sync.Cond
	places int
	length int
	closed bool
	queues map[uuid.UUID]*queue[T] // of the tenants in the line
	turns  []*queue[T]             // the same; whose turn is next comes first
	spare  *queue[T]               // for the next tenant to come

	stalled chan struct{} // has what no next group waits for; see Serve
}

// queue is what one tenant has in the line.
type queue[T any] struct {
	tenant  uuid.UUID
	members []T
	head    int
}

func (q *queue[T]) length() int { return len(q.members) - q.head }

// turn is how many callers of a tenant are served in a row while others wait.
const turn = 8

// NewLine makes a line of twice limit places.
func NewLine[T any](limit int) *Line[T] {
	l := &Line[T]{places: 2 * limit, queues: make(map[uuid.UUID]*queue[T]), stalled: make(chan struct{}, 1)}
	l.filled.L = &l.mu
	return l
}

// Join puts m at the end of its tenant's queue, or reports why it can't.
func (l *Line[T]) Join(tenant uuid.UUID, m T) Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return Closed
	}
	q := l.queues[tenant]
	if q == nil {
		if l.length >= l.places {
			return Full
		}
		if q, l.spare = l.spare, nil; q == nil {
			q = &queue[T]{}
		}
		q.tenant = tenant
		l.queues[q.tenant] = q
		l.turns = append(l.turns, q)
	} else if n := q.length(); n >= l.places-l.length {
		if len(l.turns) > 1 && n*len(l.turns) >= l.length { // a crowd beside others, not the only one
			return OwnFull
		}
		return Full
	}
	q.members = append(q.members, m)
	l.length++
	l.filled.Signal()
	return Joined
}

// Take waits until a caller is in the line and takes up to limit of them; none if the line is closed and empty.
func (l *Line[T]) Take(limit int) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.length == 0 && !l.closed {
		l.filled.Wait()
	}
	group := make([]T, 0, min(limit, l.length))
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
func (l *Line[T]) pass(q *queue[T]) {
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

// Close lets no caller join any more.
func (l *Line[T]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.filled.Broadcast()
}

// Len is how many callers are in the line.
func (l *Line[T]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.length
}
