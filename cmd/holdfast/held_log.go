package main

import (
	"bytes"
	"io"
	"sync"
)

// heldLogMax is how much of a log is held, in bytes. Later lines are dropped:
// the first ones are closest to the cause.
const heldLogMax = 64 << 10

// heldLog holds the lines of a log until the program ends. It is safe for
// concurrent use.
type heldLog struct {
	to io.Writer

	mu   sync.Mutex
	held bytes.Buffer
	open bool // lines are written at once
}

// Write holds a line, or writes it once end was called.
func (l *heldLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open {
		return l.to.Write(line)
	}
	if l.held.Len()+len(line) <= heldLogMax {
		l.held.Write(line)
	}
	return len(line), nil
}

// end writes the held lines if the program failed. It may be called again.
func (l *heldLog) end(failure error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if failure != nil && !l.open {
		_, _ = l.to.Write(l.held.Bytes()) // the terminal may be gone
	}
	l.open = true
}
