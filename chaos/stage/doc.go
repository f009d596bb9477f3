// Package stage is what a storm breaks: a private Postgres that can be stopped and started again, and Holdfast's programs,
// each a process of its own, with their logs.
//
// A program that exits unexpectedly is started again, as its platform would do, and reported.
package stage
