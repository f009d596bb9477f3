// Package audit owns the append-only record: one row per transition, written in
// the transaction that makes it.
//
// A row records the actor, the action and its target, the states before and
// after, the reason and the correlation id. The row is also the event: a
// subscriber reads the record, and nothing is published from memory.
//
// Invariants: rows are never changed, only pruned by age. The rows of a target
// are in the order of what happened, because their ids are drawn while the
// writer has the target's own row locked.
//
// The package never decides whether a transition is allowed, and it never opens
// a transaction to write. So neither an audit row without its transition nor a
// transition without its audit row can be committed.
package audit
