// Package horizon is the one place that knows how Postgres tells which transactions have ended. Whoever moves a mark
// past rows that others may still be writing compares against it.
//
// A writer takes its id (Enter) before it draws anything that is ordered by a sequence. A reader that reads the
// sequence's last value before it has an id of its own then knows: whoever drew a number up to that value has a lower id
// than its own (Own). Once Settled has reached that id, every row that carries such a number is visible, or never will
// be.
//
// The upper end of a snapshot would not do: it follows the last transaction that ended, and running ones can lie above.
package horizon

// Settled is a SQL expression of type xid8: every transaction with a lower id has ended, and the statement that asks
// sees what it committed.
const Settled = `pg_snapshot_xmin(pg_current_snapshot())`

// Given is a SQL expression of type xid8: whoever committed what the statement sees has a lower id. An id that is not lower
// was given by another cluster, from which the database was restored.
const Given = `pg_snapshot_xmax(pg_current_snapshot())`

// Own is a SQL expression of type xid8, the id of the transaction that asks: every id given out before is lower.
const Own = `pg_current_xact_id()`

// Enter is a statement that gives the transaction its id. It comes first where the transaction draws sequence numbers.
const Enter = `SELECT pg_current_xact_id()`
