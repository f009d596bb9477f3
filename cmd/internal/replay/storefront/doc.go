// Package storefront is the HTTP API as a shop's server calls it: over several addresses in turn, with a bounded number
// of connections, and with retries that can't do anything twice, because every POST, PATCH and DELETE carries an
// idempotency key of the caller's.
//
// It keeps no state beside its connections, and it takes every answer as it is: what an outcome means is the caller's to
// say.
package storefront
