// Package export configures the global OpenTelemetry providers of a program,
// once, at its start.
//
// The handler that Setup returns always serves the metrics to Prometheus.
// Traces and metrics are also sent by OTLP (or printed) if the OTEL_* variables
// of the OpenTelemetry specification ask for it. This package and the SDK below
// it read these variables. Only programs under cmd/ import it, because it links
// every exporter.
package export
