// Package stage has the targets of the faults: a private Postgres that can be
// stopped and started again, and Holdfast's programs, each a separate process,
// with their logs.
//
// A program that exits unexpectedly is reported and started again, as its
// platform would do.
package stage
