// Package hot is the lane of contended variants: strictly first come, first served within a variant.
//
// A hot variant belongs to one slot. The slot's row is locked inside the drain, so one owner at a time decides its
// stream, oldest first, without skipping rows that somebody has locked. A wake that finds its slot busy ends; the owner
// looks again after its commit.
//
// A variant moves between the lanes in the open: while it is entering or leaving, its slot decides its requests from
// both streams in one order, until no transaction that was admitted by the old rule is left (the snapshot horizon tells)
// and nothing of it stands in the stream it came from. So a move loses and reorders nothing.
package hot
