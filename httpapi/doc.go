// Package httpapi owns the HTTP API: paths, bodies, status codes, problems, and the OpenAPI document that says them all.
// One endpoint stands in one file.
//
//	router → correlation id → key and scope → parameters → body → verb of a package below → answer or problem
//
// It decides nothing about stocks, holds or requests, and it holds no SQL: every call is one verb of a package below, in
// one transaction. Which error is which status and code is said by one table, in errors.go.
//
// Invariants:
//
//   - A tenant comes from the key, never from the call. What belongs to another tenant is not found.
//   - Nothing is written for a call that is answered 4xx.
//   - One effect for an idempotency key. A call that finishes at once keeps its answer in the transaction that did the
//     work; a queued call carries the key into the status table. Only successful answers are kept.
//   - A call that was accepted is never answered with an error because of what came after, such as a wait that failed.
//   - The plaintext of an admission token is in the answer that minted it, once, and in nothing that is kept or logged.
//   - Bodies, waits and times are bounded.
package httpapi
