// Package audit owns the append-only record: one row a transition, written in the transaction that makes it.
//
// A row says who (Actor), what (Action and target), before, after, why and under which correlation id. The row is also
// the event: whoever wants to follow what happens reads the record, nothing is published from memory.
//
// Invariants: rows are never changed, only pruned by age; a target's rows stand in the order of what happened, because
// their ids are drawn while the target's own row is locked by the writer.
//
// It never decides whether a transition is allowed, and it never opens a transaction to write: an audit row without its
// transition, or a transition without its audit row, can't be committed.
package audit
