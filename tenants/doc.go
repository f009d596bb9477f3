// Package tenants owns who may call and what they were answered: tenants, their API keys, and the kept answers of calls
// that finish at once.
//
// It never keeps the plaintext of a key, and it knows nothing of what a key is used for beyond its scopes.
//
// Invariants:
//
//   - A key is stored as its SHA-256 only. It is 256 bits of randomness, so neither salt nor a slow hash would add to it.
//   - A key belongs to one tenant for ever, and once revoked is never valid again.
//   - One (tenant, idempotency key) stands for one call: its method, path and body, by their fingerprint.
//
// Each verb that joins the caller's transaction states the isolation levels it is right at; above READ COMMITTED Postgres
// may ask for the transaction to be repeated (SQLSTATE 40001). After an error from the database the caller must roll back.
package tenants
