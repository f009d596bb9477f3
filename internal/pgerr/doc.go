// Package pgerr classifies an error of Postgres or of its driver by what it
// means for the row that was being written. It decides by SQLSTATE and type,
// never by text.
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
package pgerr
