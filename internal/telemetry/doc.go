// Package telemetry holds the few helpers with which every other package reports on itself: one span and one histogram
// value a verb, a counter of finished jobs, and the correlation id in contexts and log lines.
//
// It uses the global OpenTelemetry providers and never configures them: a program does that once (package export), and
// where none does, each helper costs well under a microsecond and keeps nothing. It reads no environment, starts no
// goroutine and returns no errors, because a report that fails must not fail the work it reports on.
//
// Names of verbs, outcomes and jobs are words fixed in the code. Anything a caller sends (a tenant, a variant, an id)
// goes to spans and logs only, never to a metric's label: labels are bounded.
package telemetry
