// Package httpapi owns the HTTP API: paths, bodies, status codes, problems, and
// the OpenAPI document that says them all. The endpoints of a resource share a
// file.
//
//	mux → correlation id → key and scope → parameters → body →
//	verb of a package below → response or problem
//
// Huma makes the document of an endpoint and its handler from the same types.
// Valid requests to the busy endpoints go from the mux to the endpoint without
// huma's reflection, see router.
//
// It decides nothing about stocks, holds or requests and has no SQL: an
// endpoint runs one verb of a package below, in one transaction. One table, in
// errors.go, maps errors to status and code.
//
// Invariants:
//
//   - The tenant comes from the key, never from the rest of the request. Rows
//     of another tenant are not found.
//   - A request whose response is 4xx writes nothing.
//   - One effect per idempotency key. A request that finishes at once stores
//     its response in the transaction that did the work. A request that is
//     queued stores the key in the status table. Only successful responses are
//     stored.
//   - The response to an accepted request is never an error because of what
//     followed, such as a wait that failed.
//   - The plaintext of an admission token is in the response that minted it,
//     once. It is not stored and not logged.
//   - Bodies, waits and times are bounded.
package httpapi
