// Package queues owns the lanes, their wakes and the drain: the one transaction that claims requests, locks stocks,
// decides, and writes holds, outcomes and audit rows.
//
// A wake means that a slot has work: a River job, which is durable, a notification, or a call in the same process. It
// carries no work; a tick drains what no wake reached. Correctness never depends on River or on a notification.
//
// Invariants: what a drain does is seen at once or not at all; a row that fails individually is tried in isolation and
// never stops its lane; no drain runs longer than its bound.
//
// What waits is counted by one process at a time and published (Load): the intakes refuse by it.
//
// Direct decides what callers wait for in the transaction that admits it, if nothing comes first.
//
// The order in which a lane claims, and who may drain a slot, is the lane's own: packages hot and normal. Lock order:
// slots, requests, stocks, reservations. A slot that is only locked to move its mark is never waited for.
package queues
