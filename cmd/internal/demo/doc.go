// Package demo is a flash sale against a running service: ten buyers for each unit of one hot variant, beside normal
// traffic, all of it through the HTTP API, with live progress. It ends with what was admitted, held and sold out, the
// latencies, and the invariants checked in SQL on the service's database.
//
// It is a demonstration and no benchmark: the buyers come at a pace, and share the machine with the service and Postgres.
//
// Invariants: who comes, and for what, is the same for the same seed; whatever is not exactly as promised is an error.
package demo
