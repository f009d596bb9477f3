// Package telemetry holds the helpers with which the other packages report: one
// span and one histogram value per verb, a counter of finished jobs, and the
// correlation id in contexts and log lines.
//
// It uses the global OpenTelemetry providers and never configures them. A
// program configures them once (package export). Without that, each helper
// takes well under a microsecond and keeps nothing. The package reads no
// environment, starts no goroutine and returns no errors: a failed report must
// not fail the work that it reports on.
//
// Names of verbs, outcomes and jobs are fixed words in the code. Text from
// callers (a tenant, a variant, an id) goes to spans and logs only and never
// becomes a metric's label: labels are bounded.
package telemetry
