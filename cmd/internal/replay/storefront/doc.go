// Package storefront calls the HTTP API as a shop's server does: at several
// addresses in turn, with a bounded number of connections, and with retries
// that have no second effect, because every POST, PATCH and DELETE carries an
// idempotency key of the caller.
//
// It keeps no state except its connections, and it does not interpret outcomes:
// that is the caller's task.
package storefront
