// Package config owns the environment of the programs: every variable, its
// default, and the sentence that describes an invalid value.
//
// Nothing outside cmd reads the environment, except that the OTEL_* variables
// of the OpenTelemetry specification are read by its SDK, and PG_BIN and
// PG_MAJOR by the private Postgres. A variable that is set to the empty text
// counts as not set.
//
// docs/configuration.md lists the variables; a test compares it with the struct
// tags here.
package config
