package fair

import (
	"sync"
	"time"
)

// stallAfter is how long a group's commit may take before the next group of its line no longer waits for it.
const stallAfter = 500 * time.Millisecond

// Serve takes groups of up to limit callers and gives each to commit, one after the other, until the line is closed and
// empty, and returns once all are committed. A commit that takes unusually long keeps its own group waiting, and the next
// one for a moment, but not those behind it; of one line, one such commit is left at a time. Several goroutines may serve
// a line.
func (l *Line[T]) Serve(limit int, commit func(group []T)) {
	var working sync.WaitGroup
	for group := l.Take(limit); len(group) > 0; group = l.Take(limit) {
		committed := make(chan struct{})
		working.Go(func() {
			defer close(committed)
			commit(group)
		})
		l.goOn(committed)
	}
	working.Wait()
}

// goOn waits until a group is committed, or until that takes longer than stallAfter and it is the line's only such group.
func (l *Line[T]) goOn(committed <-chan struct{}) {
	timer := time.NewTimer(stallAfter)
	defer timer.Stop()
	select {
	case <-committed:
		return
	case <-timer.C:
	}
	select {
	case <-committed:
	case l.stalled <- struct{}{}:
		go func() {
			<-committed
			<-l.stalled
		}()
	}
}
