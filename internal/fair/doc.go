// Package fair is the queue in which callers of several tenants wait until they
// are handled as a group. It is first come, first served within a tenant, and
// round robin over the tenants. Its length is bounded, in total and per tenant.
// It does not know what the callers wait for.
package fair
