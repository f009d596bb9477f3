// Package demo runs a flash sale against a running service: ten buyers for each
// unit of one hot variant, beside normal traffic, all of it through the HTTP
// API, with live progress. At the end it prints what was admitted, held and
// sold out, the latencies, and the invariants checked in SQL on the service's
// database.
//
// It is a demonstration, not a benchmark: the buyers arrive at a fixed pace,
// and share the machine with the service and Postgres.
//
// Invariants: the same seed makes the same buyers and carts. Every deviation
// from a promise is an error.
package demo
