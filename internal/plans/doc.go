// Package plans controls how Postgres plans the statements of the busiest path:
// admission and the drain.
package plans
