// Package storefront has the files of the sample storefront: one product page
// in plain HTML, CSS and JavaScript that sells a variant over the public API.
//
// It serves files and the page's settings. It never calls the API and never
// reads the database: the page does what a shop's page does, and holdfast run
// serves it at /demo/.
//
// Invariants: the page loads no asset of another server, and its
// Content-Security-Policy allows none. config.json is never cached.
package storefront
