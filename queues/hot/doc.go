// Package hot is the lane of contended variants: strictly first come, first served within a variant.
//
// A hot variant has a slot of its own. The slot's row is locked by the drain, so one transaction at a time drains its
// stream, oldest first, without skipping rows that another transaction has locked. What is decided as it is admitted
// (queues.Direct) comes after all that was queued before it was sent.
//
// A variant moves between the lanes in the open: while it is entering or leaving, its slot decides its requests from
// both streams in one order, until every admission by the old rule has ended
// and nothing of it is left in the stream it came from. So a move loses and reorders nothing.
//
// A pin moves a variant, and so does the detector, by itself: each API process counts what arrives (Signals) and notes it in
// the database; one Detector at a time adds it up, with what waits and what was turned away, and decides within bounds and
// with hysteresis. It moves and records in one transaction, or not at all. It also diverts tenants that keep their neighbours
// in the normal lane waiting. Pins come before the detector; while it does not run, nothing is moved and nothing else is lost.
package hot
