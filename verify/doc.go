// Package verify checks the invariants of a Holdfast database in SQL. Each
// check has a name, a meaning in one sentence, and a condition or a statement
// that selects the rows which break it. A check that selects nothing holds.
// docs/verify.md lists them, and the damages on which they were tried.
//
// [Run] makes all checks on one snapshot, in a read-only transaction. It takes
// no row lock and needs only SELECT on the tables and sequences, so it can run
// while the service works. It never repairs anything. While it runs, vacuum
// keeps the rows that the snapshot sees.
//
// The package reads tables and calls none of the code that it checks.
//
// # Pruned rows
//
// Finished requests, ended reservations and audit rows are pruned by age. A
// row that ended longer ago than [Config.Retention] may lack its counterparts;
// every younger row must have them. A purge under a shorter retention leaves a
// mark, up to which rows may lack them too. Two times that one transaction read
// after each other may differ by a minute, which is longer than any transaction
// of the service lasts.
//
// # A clock that was set back
//
// A failover to another host, or a step of NTP, can set the database's clock
// back. The checks therefore order rows by the sequence of requests and by
// audit ids, which are drawn under the locks. Times that run backwards while
// the record is in order break no check. [Report.Notes] lists such rows, and
// where in the record the clock was set back.
//
// # What is not checked
//
//   - Whether a request was rejected with out_of_stock correctly: the rows do
//     not record when units came back in between.
//   - The order of decisions less than a minute apart: the rows do not record
//     when an admission was committed. After the clock was set back, the order
//     is not checked until the clock has caught up.
//   - max_per_cart, which may have been changed since.
//   - The lifetime cap, unless [Config.LifetimeMax] gives it.
package verify
