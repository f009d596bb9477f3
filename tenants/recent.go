package tenants

import (
	"crypto/sha256"
	"sync"
)

// recent remembers the newest answers, at least size and at most twice as many. When one generation is full it becomes
// the old one and the old one is dropped, so that every step costs the same.
type recent struct {
	mu       sync.Mutex
	size     int
	new, old map[[sha256.Size]byte]answer
}

func newRecent(size int) *recent {
	return &recent{size: size, new: make(map[[sha256.Size]byte]answer)}
}

func (r *recent) get(hash [sha256.Size]byte) (answer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ans, ok := r.new[hash]; ok {
		return ans, true
	}
	ans, ok := r.old[hash]
	return ans, ok
}

func (r *recent) put(hash [sha256.Size]byte, ans answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.new) >= r.size {
		r.old, r.new = r.new, make(map[[sha256.Size]byte]answer)
	}
	r.new[hash] = ans
}
