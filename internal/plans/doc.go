// Package plans says how the database should plan the statements of the busiest path: admission and the drain.
package plans
