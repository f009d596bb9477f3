// Package export configures the global OpenTelemetry providers of a program, once, at its start.
//
// Metrics are always offered to Prometheus through the handler Setup returns. Traces and metrics are also sent by OTLP
// (or printed) when the environment asks for it with the OTEL_* variables of the OpenTelemetry specification, which
// this package and the SDK below it read themselves. Programs under cmd/ import it; no library package does, because it
// links every exporter there is.
package export
