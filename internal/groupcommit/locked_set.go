package groupcommit

import (
	"maps"
	"sync"
	"time"
)

// LockedSet remembers keys whose rows another transaction kept locked, each for
// a second, so that further callers that need such a row are refused before
// they start a transaction. It is bounded, and safe for concurrent use.
type LockedSet[K comparable] struct {
	max   int
	mu    sync.Mutex
	until map[K]time.Time
}

// lockedFor is how long a key is remembered.
const lockedFor = time.Second

// NewLockedSet makes a set of at most size keys; further ones are not
// remembered.
func NewLockedSet[K comparable](size int) *LockedSet[K] {
	return &LockedSet[K]{max: size, until: make(map[K]time.Time)}
}

// MarkLocked remembers the keys from now on.
func (s *LockedSet[K]) MarkLocked(now time.Time, keys ...K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.until, func(_ K, until time.Time) bool { return now.After(until) })
	for _, key := range keys {
		if len(s.until) < s.max {
			s.until[key] = now.Add(lockedFor)
		}
	}
}

// IsLocked reports whether the key is remembered at now.
func (s *LockedSet[K]) IsLocked(now time.Time, key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Before(s.until[key])
}
