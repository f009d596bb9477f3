// Package requests owns the status table: what callers asked for, from the 202 to the answer.
//
//	queued ──▶ done | failed            decided by a drain, in one transaction, or by the one that admits it (Decider)
//	queued ──▶ processing ──▶ done | failed   the careful way, for a row that failed by itself
//
// Intake admits in groups: while one group's transaction commits, the next one gathers. A request is answered once its
// row is committed; from then on it reaches done or failed, once, and that answer never changes. One effect per
// (tenant, idempotency key).
//
// The claims here hand rows to the drain of package queues; they lock, they do not mark. Order is the table's sequence.
// lane and slot on a row are a hint given at admission.
//
// What is decided is not this package's, and it never counts stock.
package requests
