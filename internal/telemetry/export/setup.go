package export

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/contrib/instrumentation/runtime"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// Setup configures the global meter provider, tracer provider, propagator and
// error handler for a program and its version. service is the program's name,
// which OTEL_SERVICE_NAME overrides. Each process is a separate instance
// (service.instance.id), so two processes never report one series.
//
// metrics serves every metric in the Prometheus text form, including those of
// the process and the Go runtime. A signal is also exported if
// OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER names an exporter, or by OTLP
// if an OTEL_EXPORTER_OTLP_ENDPOINT is set; OTEL_SDK_DISABLED=true forbids it.
// Without an exporter, spans are not recorded, but the trace of an incoming
// call is still carried to the logs.
//
// shutdown sends what is pending, within its context's deadline; call it once,
// last. An error names the variable that cannot be read or has an unknown
// value, without that value. After an error nothing runs. Call Setup once per
// process.
func Setup(ctx context.Context, service, version string) (shutdown func(context.Context) error, metrics http.Handler, err error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(logFailure))
	log := &sdkLog{}
	otel.SetLogger(logr.New(log))
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))

	about, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", service), attribute.String("service.version", version),
			attribute.String("service.instance.id", uuid.NewString())),
		resource.WithTelemetrySDK(), resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		return nil, nil, fmt.Errorf("describe %s to telemetry, with OTEL_RESOURCE_ATTRIBUTES: %w", service, err)
	}
	stopTraces, err := startTraces(ctx, about)
	if err != nil {
		return nil, nil, err
	}
	meters, metrics, err := meterProvider(ctx, about)
	if err != nil {
		return nil, nil, errors.Join(err, stopTraces(ctx))
	}
	shutdown = func(ctx context.Context) error {
		return errors.Join(stopTraces(ctx), meters.Shutdown(ctx))
	}
	if err := log.end(); err != nil {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = shutdown(ended) // nothing to send
		return nil, nil, err
	}
	if err := runtime.Start(runtime.WithMeterProvider(meters)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("measure the runtime: %w", err), shutdown(ctx))
	}
	otel.SetMeterProvider(meters)
	return shutdown, metrics, nil
}

// logFailure logs failures inside the SDK, such as a collector that does not
// answer.
func logFailure(err error) { slog.Warn("telemetry failed", "error", err) }

// TracesAsked reports whether the environment names an exporter of traces.
// Without one, spans are not worth making.
func TracesAsked() bool { return asked("TRACES") }

// startTraces sets a tracer provider that exports as the environment asks.
// Otherwise the global one remains: it records nothing and passes an incoming
// trace on.
func startTraces(ctx context.Context, about *resource.Resource) (stop func(context.Context) error, err error) {
	if !TracesAsked() {
		return func(context.Context) error { return nil }, nil
	}
	exporter, err := autoexport.NewSpanExporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("start the traces exporter that OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_* name: %w", err)
	}
	traces := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	otel.SetTracerProvider(traces)
	return traces.Shutdown, nil
}

// meterProvider returns a provider that Prometheus reads through the handler
// and, if the environment asks for it, an exporter.
func meterProvider(ctx context.Context, about *resource.Resource) (*metric.MeterProvider, http.Handler, error) {
	registry := prometheus.NewRegistry()
	if err := registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})); err != nil {
		return nil, nil, fmt.Errorf("measure the process: %w", err)
	}
	scraped, err := promexporter.New(promexporter.WithRegisterer(registry))
	if err != nil {
		return nil, nil, fmt.Errorf("start the Prometheus reader: %w", err)
	}
	options := []metric.Option{metric.WithResource(about), metric.WithReader(scraped)}
	if asked("METRICS") {
		pushed, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("start the metrics exporter that OTEL_METRICS_EXPORTER and OTEL_EXPORTER_OTLP_* name: %w", err)
		}
		options = append(options, metric.WithReader(pushed))
	}
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})
	return metric.NewMeterProvider(options...), handler, nil
}

// asked reports whether the environment names an exporter for signal, "TRACES"
// or "METRICS". With the specification's default, OTLP to localhost, every
// program would report that the connection is refused.
func asked(signal string) bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return false
	}
	if name := os.Getenv("OTEL_" + signal + "_EXPORTER"); name != "" {
		return name != "none"
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}
