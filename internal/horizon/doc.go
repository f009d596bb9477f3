// Package horizon is the one place that knows how Postgres tells which transactions have ended. Whoever moves a mark
// past rows that others may still be writing compares against it.
//
// A transaction draws its id before it draws anything that is ordered by a sequence, so this holds: read a sequence's
// last value, then, in a later statement, take Open. Once Settled has reached that value, every row that carries a
// sequence number up to the one read is visible, or never will be.
package horizon

// Settled is a SQL expression of type xid8: every transaction with a lower id has ended, and the statement that asks
// sees what it committed.
const Settled = `pg_snapshot_xmin(pg_current_snapshot())`

// Open is a SQL expression of type xid8: every transaction that has an id as the statement begins has a lower one.
const Open = `pg_snapshot_xmax(pg_current_snapshot())`

// Enter is a statement that gives the transaction its id. It comes first where the transaction draws sequence numbers.
const Enter = `SELECT pg_current_xact_id()`
