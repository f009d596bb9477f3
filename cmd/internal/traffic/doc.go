// Package traffic sends customers to a running service through its HTTP API, as
// shops do, and counts the outcomes that they receive.
//
//   - [Demo] holds a flash sale: ten buyers for each unit of one hot variant,
//     beside generated carts of other variants. It prints what was admitted,
//     held and sold out, the latencies, and the invariants checked in SQL on the
//     service's database. It is no benchmark: the buyers arrive at a fixed pace,
//     and share the machine with the service and Postgres.
//   - [Replay] sends the carts of a file, and compares the outcomes of each item
//     with the stock before and afterwards. It never uses the database.
//
// Invariants: each call has its own idempotency key, so neither a lost response
// nor a restarted service duplicates it. A customer waits for the outcome of an
// item before it adds the next one. Each sale has the same buyers and carts. Every
// deviation from a promise is reported.
package traffic
