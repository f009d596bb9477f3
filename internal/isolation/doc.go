// Package isolation rejects transactions whose isolation level is too strict
// for a verb.
//
// At REPEATABLE READ and SERIALIZABLE, every statement of a transaction reads
// the snapshot of its first statement. There, a verb misses a row that another
// transaction has just committed: a route, an idempotency key, a row behind a
// lock. Postgres reports a conflict (SQLSTATE 40001) only if the same row is
// also written. Such a verb needs READ COMMITTED, where each statement has its
// own snapshot.
package isolation
