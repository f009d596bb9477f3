package groupcommit

import (
	"slices"
	"sync"

	"github.com/google/uuid"
)

// Refusal is why a caller can't join a queue.
type Refusal int

// What Join reports.
const (
	Joined Refusal = iota
	Closed
	// Full means that the queue has no capacity left for the tenant. TenantFull
	// means the same where other tenants wait too, and this one has at least
	// its share of the callers.
	Full
	TenantFull
)

// fairQueue holds callers until a group takes them: first come, first served within
// a tenant, and round robin over the tenants with a quantum of eight callers.
// So the crowd of one tenant delays a caller of another one by a quantum, not
// by the length of the whole crowd.
//
// Its capacity is twice the limit. A tenant may have as many callers in the
// queue as there is capacity left. So one tenant alone fills the limit, and two
// crowds take a third of the capacity each. A tenant without a caller in the
// queue can always join.
type fairQueue[T any] struct {
	mu       sync.Mutex
	filled   sync.Cond
	capacity int
	length   int
	closed   bool
	tenants  map[uuid.UUID]*tenantQueue[T] // tenants with callers in the queue
	rotation []*tenantQueue[T]             // the same tenants; the first is served next
	free     *tenantQueue[T]               // kept for the next tenant that joins
}

// tenantQueue is what one tenant has in the queue.
type tenantQueue[T any] struct {
	tenant  uuid.UUID
	members []T
	head    int
}

func (t *tenantQueue[T]) length() int { return len(t.members) - t.head }

// quantum is how many callers of a tenant are served in a row while others
// wait.
const quantum = 8

// newFairQueue makes a queue whose capacity is twice limit.
func newFairQueue[T any](limit int) *fairQueue[T] {
	q := &fairQueue[T]{capacity: 2 * limit, tenants: make(map[uuid.UUID]*tenantQueue[T])}
	q.filled.L = &q.mu
	return q
}

// Join puts m at the end of its tenant's queue, or reports why it can't.
func (q *fairQueue[T]) Join(tenant uuid.UUID, m T) Refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return Closed
	}
	own := q.tenants[tenant]
	if own == nil {
		if q.length >= q.capacity {
			return Full
		}
		own, q.free = q.free, nil
		if own == nil {
			own = &tenantQueue[T]{}
		}
		own.tenant = tenant
		q.tenants[tenant] = own
		q.rotation = append(q.rotation, own)
	} else if n := own.length(); n >= q.capacity-q.length {
		if len(q.rotation) > 1 && n*len(q.rotation) >= q.length { // at least its share, and other tenants wait
			return TenantFull
		}
		return Full
	}
	own.members = append(own.members, m)
	q.length++
	q.filled.Signal()
	return Joined
}

// Take waits until a caller is in the queue and takes up to limit of them; none
// if the queue is closed and empty.
func (q *fairQueue[T]) Take(limit int) []T {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.length == 0 && !q.closed {
		q.filled.Wait()
	}
	group := make([]T, 0, min(limit, q.length))
	for len(group) < limit && q.length > 0 {
		next := q.rotation[0]
		n := min(limit-len(group), next.length())
		if len(q.rotation) > 1 {
			n = min(n, quantum)
		}
		group = append(group, next.members[next.head:next.head+n]...)
		clear(next.members[next.head : next.head+n])
		next.head += n
		q.length -= n
		q.rotate(next)
	}
	if q.length > 0 {
		q.filled.Signal() // for another committer
	}
	return group
}

// rotate ends the quantum of served, which is the first of the rotation.
func (q *fairQueue[T]) rotate(served *tenantQueue[T]) {
	if served.length() == 0 {
		served.members, served.head = served.members[:0], 0
		delete(q.tenants, served.tenant)
		q.rotation[0] = nil
		if len(q.rotation) == 1 {
			q.rotation = q.rotation[:0]
		} else {
			q.rotation = q.rotation[1:]
		}
		if cap(served.members) <= keptMax {
			q.free = served
		}
		return
	}
	if len(q.rotation) > 1 {
		q.rotation = append(q.rotation[1:], served)
	}
	if served.head >= keptMax {
		served.members, served.head = slices.Delete(served.members, 0, served.head), 0
	}
}

// keptMax is the largest number of elements that an empty tenantQueue keeps
// allocated, and of taken elements that a long one keeps.
const keptMax = 4096

// Close makes every later Join fail.
func (q *fairQueue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.filled.Broadcast()
}

// Len is how many callers are in the queue.
func (q *fairQueue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.length
}
