// Package queues owns the lanes, their wakes and the drain: the one transaction that claims requests, locks stocks,
// decides, and writes holds, outcomes and audit rows.
//
// A wake is a River job that says "this lane and slot have work". It is a durable hint and carries no work; a tick drains
// what no wake reached. Correctness never depends on River or on a notify.
//
// Invariants: what a drain does is seen at once or not at all; a row that fails by itself is tried alone, visibly, and
// never stops its lane; no drain runs longer than its bound.
//
// The order in which a lane claims, and who may drain a slot, is the lane's own: packages hot and normal. Lock order:
// slots, requests, stocks, reservations.
package queues
