// Package pgerr says what an error of Postgres or of its driver means for the row that was being worked on. It decides
// by SQLSTATE and type, never by text.
//
// There are three answers and a silence:
//
//   - [IsData]: the row's own fault. Doing the same again fails again, so it counts as an attempt of that row.
//   - [IsRetryable]: nothing happened. The same may be done again at once and blindly, a bounded number of times.
//   - [IsOutage]: the server, the connection or the schema is not in order. It says nothing of the row and never counts
//     against it; wait, and do it again.
//   - None of them for nil and for [context.Canceled]: the caller gave up, which is no news of the row or the server.
//
// Every other error is exactly one of data and not data: what this package does not know is data, so that no row can be
// tried for ever. Not data is retryable, outage, or, for a connection that was lost before anything was sent, both.
//
// A COMMIT that fails without a SQLSTATE may have committed all the same; such an error is an outage, never retryable.
package pgerr
