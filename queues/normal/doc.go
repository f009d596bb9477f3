// Package normal is the lane of everything that is not contended: several drains side by side, each taking the oldest
// requests that nobody else has locked.
//
// Requests of one cart for one variant are still decided in their order. Hot variants are left alone.
//
// The lane has two streams: everybody's, and one for tenants that were diverted because they flooded it. What they send
// waits there, for a drain of its own, and keeps nobody else waiting. The order within a cart holds across both.
package normal
