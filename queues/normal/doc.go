// Package normal is the lane of all variants that are not contended. Several
// drains run concurrently, and each one takes the oldest requests that no other
// transaction has locked.
//
// Requests of one cart for one variant are decided in their order. Requests for
// hot variants are not claimed.
//
// The lane has two streams: one that all tenants share, and one for tenants
// that were diverted because they flooded it. The requests of a diverted tenant
// wait in that stream, for a separate drain, and do not delay other tenants.
// The order within a cart holds across both.
package normal
