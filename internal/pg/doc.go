// Package pg has what the packages with SQL share: results of a batch as values
// ([Collect]), the database's clock, the check of a transaction's isolation
// level, the arrays that a statement reads with unnest, control of plans, a
// listener for notifications, and the classes of errors.
//
// An error of Postgres or of its driver is classified by what it means for the
// row that was being written, by SQLSTATE and type, never by text.
//
// There are three classes:
//
//   - [IsData]: the row causes the error. The same attempt fails again, so it
//     counts as an attempt of that row.
//   - [IsRetryable]: nothing happened. The caller may repeat the same work at
//     once, a bounded number of times.
//   - [IsOutage]: the server, the connection or the schema is not in order.
//     The error never counts against the row; the caller waits and repeats the
//     work.
//
// nil and [context.Canceled] are in none of them: a caller that gave up is no
// evidence about the row or the server.
//
// Every other error is either data or not data. An error that this package does
// not know is data, so that no row is tried for ever. An error that is not data
// is retryable, an outage, or both if the connection was lost before anything
// was sent.
//
// A COMMIT that fails without a SQLSTATE may have committed. Such an error is
// an outage and never retryable.
package pg
