// Package ratelimit counts how often something is done, for whole batches of
// items in one round trip.
//
// A [Rate] allows an amount at once and refills evenly over a window. The
// algorithm is GCRA, the generic cell rate algorithm (ITU-T I.371, annex A, in
// the form called virtual scheduling): all that is stored of a rate is its
// theoretical arrival time, one number in the table budget_rates. A row exists
// only while that moment is ahead, and until a purge after it.
//
// A [Batch] is the batch rate limiter. It counts many items of many tenants in
// the caller's transaction, together with the caller's own writes.
//
// Invariant, in every committed state and whichever process dies: a rate
// allows no more than its limit at once. A refused item is counted nowhere and
// costs the other items nothing.
//
// The package does not know what an item is. What else decides about items, and
// what is written of that, is the caller's: see [DecideOpts]. Times are those of
// the database's clock.
//
// # Stalled lock holders
//
// A process that stops in the middle of a transaction keeps its locks until
// Postgres notices. [Batch.Blocked] keeps such a process from stopping others:
// after a lock timeout it finds the items of a batch that need a row which one
// transaction keeps locked.
//
// # Locks and isolation
//
// A batch locks rates in the order of (tenant, scope), after everything that
// other packages lock, tokens included. A transaction runs one batch.
//
// Every verb is correct at every isolation level. Above READ COMMITTED a lost
// race is a serialization failure (SQLSTATE 40001).
//
// The table belongs to the migrations of metered commands:
// [github.com/holdfast/holdfast/migrations.Up] with Config.Metered.
package ratelimit
