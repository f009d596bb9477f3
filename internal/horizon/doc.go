// Package horizon determines which numbers of a sequence can no longer appear
// in a new row. A mark that moves past rows which other transactions may still
// be writing is compared with such a bound. There are two rules.
//
// # By writers
//
// This rule is for a sequence whose writers take part, with [EnterSequence], if
// their rows are among those that the mark must not pass. Only these writers hold
// the mark back. The status table uses it, for requests that are inserted as
// queued.
//
// # By transaction ids: the xid horizon
//
// This rule is for a table that any transaction may write, such as the audit
// log. It uses the transaction-id horizon, the xmin of a snapshot: each
// transaction with a lower id has ended (see "Transaction ID and Snapshot
// Information Functions" in the Postgres manual).
//
// A writer takes its id ([CurrentXID]) before it draws a number of the
// sequence. A reader first reads the last number drawn ([Drawn]) and then takes
// an id of its own. The writers of all numbers up to that one have lower ids.
// Once [Xmin] has reached the reader's id, each row with such a number is
// visible, or never will be.
//
// Every transaction of the server that has an id holds Xmin back. Xmax cannot
// take its place: it follows the last transaction that ended, and transactions
// with lower ids may still run.
package horizon

// Xmin is a SQL expression of type xid8, the xmin of the statement's snapshot.
// Each transaction with a lower id has ended, and the statement sees its rows
// if it committed.
const Xmin = `pg_snapshot_xmin(pg_current_snapshot())`

// Xmax is a SQL expression of type xid8, the xmax of the statement's snapshot.
// Each transaction whose rows the statement sees has a lower id. A stored id
// that is not lower comes from another cluster, of which the database is a
// copy.
const Xmax = `pg_snapshot_xmax(pg_current_snapshot())`

// CurrentXID is a SQL expression of type xid8, the id of the current
// transaction, which takes one if it has none. Each id taken before is lower.
const CurrentXID = `pg_current_xact_id()`
