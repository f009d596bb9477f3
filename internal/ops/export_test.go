package ops

import "time"

// Age makes what was read of the cells older.
func (c *Cells) Age(by time.Duration) {
	for _, m := range c.members {
		m.mu.Lock()
		m.readAt = m.readAt.Add(-by)
		m.mu.Unlock()
	}
}
