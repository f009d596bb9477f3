package carts

import "time"

// Waiting is the number of calls that wait for a group.
func (g *Groups) Waiting() int { return g.queue.Len() }

// HoldsMax is the largest number of holds of a cart whose calls are made in a
// group.
const HoldsMax = holdsMax

// StopClock stops the clock by which locked stocks are remembered. It is called
// before Run.
func (g *Groups) StopClock() {
	now := time.Now()
	g.now = func() time.Time { return now }
}
