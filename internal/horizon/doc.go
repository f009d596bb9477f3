// Package horizon is the one place that knows how Postgres reports which transactions have ended. A mark that moves past
// rows which other transactions may be writing is compared with it. There are two rules.
//
// By writers, for a sequence whose writers all take part (EnterSequence): only they hold the mark back. The status table
// uses it.
//
// By transaction ids, where any transaction may write, as in the audit log: a writer takes its id (Own) before it draws a
// number of the sequence. A reader that reads the sequence's last value before it has an id of its own then knows that the
// writers of the numbers up to that value have lower ids than its own. Once Settled has reached that id, every row with
// such a number is visible, or never will be. Any transaction of the server that writes holds Settled back.
//
// The upper end of a snapshot would not do: it follows the last transaction that ended, and running ones can be above it.
package horizon

// Settled is a SQL expression of type xid8: every transaction with a lower id has ended, and the statement that asks
// sees what it committed.
const Settled = `pg_snapshot_xmin(pg_current_snapshot())`

// Given is a SQL expression of type xid8: whoever committed what the statement sees has a lower id. An id that is not lower
// was given by another cluster, from which the database was restored.
const Given = `pg_snapshot_xmax(pg_current_snapshot())`

// Own is a SQL expression of type xid8, the id of the transaction that asks: every id given out before is lower.
const Own = `pg_current_xact_id()`
