// Package normal is the lane of everything that is not contended: several drains side by side, each taking the oldest
// requests that nobody else has locked.
//
// Requests of one cart for one variant are still decided in their order. Hot variants are left alone.
package normal
