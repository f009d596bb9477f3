// Package isolation refuses transactions at an isolation level that a verb is not right at.
//
// At REPEATABLE READ and SERIALIZABLE every statement of a transaction reads the snapshot of its first statement. A verb
// that reads a row which another transaction has just committed (a route, an idempotency key, what a lock protects) misses
// it there, and Postgres reports a conflict (SQLSTATE 40001) only where the same row is also written. Such a verb needs READ
// COMMITTED, where each statement has a snapshot of its own.
package isolation
