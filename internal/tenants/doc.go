// Package tenants owns tenants, their API keys, and the stored answers of calls
// that finish at once.
//
// It never stores the plaintext of a key, and it does not know what a key is
// used for beyond its scopes.
//
// Invariants:
//
//   - A key is stored as its SHA-256 only. It is 256 random bits, so neither
//     salt nor a slow hash would add to it.
//   - A key always belongs to the same tenant, and once revoked is never valid
//     again.
//   - One (tenant, idempotency key) belongs to one call: its method, path and
//     body, by their fingerprint.
//
// Each verb that joins the caller's transaction states the isolation levels at
// which it is correct. Above READ COMMITTED Postgres may require the
// transaction to be repeated (SQLSTATE 40001). After an error from the database
// the caller must roll back.
package tenants
