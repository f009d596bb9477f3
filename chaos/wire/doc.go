// Package wire is a TCP proxy between programs and Postgres that breaks their
// connections on purpose: at a COMMIT, all at once, or by delivering nothing
// for a while.
//
// Each program has a separate [Route], so that one can lose its database while
// the others keep theirs. The proxy reads the messages of the frontend/backend
// protocol (chapter 55 of the PostgreSQL manual) only to find a COMMIT: the
// statement, or the Sync that ends a pipeline with writes. It does not change
// or keep messages.
package wire
