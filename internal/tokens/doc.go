// Package tokens owns the rows of single-use tokens, and redeems the tokens of
// a whole group in the round trip of the caller's own writes.
//
// Package metered is its public side, which mints tokens and redeems single
// ones. Package admission presents the tokens of a group with [Redemptions].
// Only the hash of a token is stored, and only the hash is in a [Presented].
//
// Tokens are locked in the order of (tenant, hash), after the locks of all
// other packages except the rates of package ratelimit, which come last.
package tokens
