package queues

import "sync"

// pace is how many requests the next claim at each slot takes: a full batch, unless one there failed lately. A batch that
// fails on data, or runs out of its time, halves it; each that is decided lets it grow by a quarter, slowly, because where
// several drain a slot those that did not get the bad row say nothing of it. So a row that can't be decided is soon alone,
// several of them in a row cost little more than the first, and a database too slow for a full batch still gets through
// smaller ones. It is safe for concurrent use.
type pace struct {
	mu   sync.Mutex
	less map[int16]int // of the slots that take less than a full batch
}

// of returns how many to claim next at the slot, full at most.
func (p *pace) of(slot int16, full int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.less[slot]; ok {
		return n
	}
	return full
}

// failed says that a batch of n, at least 2, could not be decided together.
func (p *pace) failed(slot int16, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.less == nil {
		p.less = make(map[int16]int)
	}
	p.less[slot] = n / 2
}

// passed says that a claim of up to n was decided.
func (p *pace) passed(slot int16, n, full int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	less, ok := p.less[slot]
	if !ok || n > less { // n: it began before the last one failed
		return
	}
	if less += less/4 + 1; less < full {
		p.less[slot] = less
	} else {
		delete(p.less, slot)
	}
}
