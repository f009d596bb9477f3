// Package queues serves the lanes. It owns the wakes and the drain: the one
// transaction that claims requests, locks stocks, decides, and writes holds,
// outcomes and audit rows.
//
// A wake means that a slot has work. It is a durable River job, a notification,
// or a call in the same process. It carries no work, and a tick drains the
// slots that no wake has reached. Correctness never depends on River or on a
// notification.
//
// Invariants: other transactions see all of a drain's writes at once or none of
// them; a row that fails individually is tried in isolation and never stops its
// lane; no drain waits for a hold that another transaction has locked; no drain
// runs longer than its bound.
//
// One process at a time counts the undecided requests and publishes the result
// (Load, lanes.Load). The intakes shed load by it.
//
// Direct decides a request in the transaction that admits it, if its caller
// waits and no earlier request does.
//
// Packages hot and normal decide the order in which a lane claims, and which
// drains may share a slot. Lock order: slots, requests, stocks, reservations.
// No transaction waits for a slot that it locks only to move its mark.
package queues
