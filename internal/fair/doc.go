// Package fair has the line in which callers of several tenants wait for a group: first come, first served within a
// tenant, the tenants in turn, bounded for all and for each. It knows nothing of what the callers wait for.
package fair
