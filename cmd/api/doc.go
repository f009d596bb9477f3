// Command api serves the HTTP API: it accepts requests, and tells of their outcomes. Deciding them is the worker's work.
//
// It reads the environment described in docs/configuration.md, takes no arguments, logs JSON lines to stderr, and stops
// on SIGTERM or SIGINT: it accepts no more, answers what is in flight, and commits what stands in its line.
package main
