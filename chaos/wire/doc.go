// Package wire is a TCP proxy between programs and Postgres that breaks their connections on purpose: at a COMMIT, all at
// once, or by delivering nothing for a while.
//
// Each program has a [Route] of its own, so that one can lose its database while the others have theirs. The proxy reads
// the messages of the frontend/backend protocol (chapter 55 of the PostgreSQL manual) as far as it needs to know a COMMIT:
// the statement itself, or the Sync that ends a pipeline which wrote. It changes none of them, and keeps none.
package wire
