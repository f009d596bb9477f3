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

// Setup configures the global meter provider, tracer provider, propagator and error handler for the program called
// service, a name that OTEL_SERVICE_NAME overrides, and its version. Each process is an instance of its own
// (service.instance.id), so that two of them never report one series.
//
// metrics serves every metric in the Prometheus text form, the process's own and the Go runtime's among them. A signal
// is exported elsewhere too if OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER names an exporter, or if an
// OTEL_EXPORTER_OTLP_ENDPOINT is set (then by OTLP); OTEL_SDK_DISABLED=true forbids it. Without one, spans are not
// recorded, but the trace of an incoming call is still carried through to the logs.
//
// shutdown sends what is still waiting, within its context's deadline; call it once, last. An error says which variable
// asks for something unknown or cannot be read, without its value, and leaves nothing running. Setup is for one call a process.
func Setup(ctx context.Context, service, version string) (shutdown func(context.Context) error, metrics http.Handler, err error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(logFailure))
	log := &complaints{}
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
		_ = shutdown(ended) // there is nothing to send
		return nil, nil, err
	}
	if err := runtime.Start(runtime.WithMeterProvider(meters)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("measure the runtime: %w", err), shutdown(ctx))
	}
	otel.SetMeterProvider(meters)
	return shutdown, metrics, nil
}

// logFailure is told what goes wrong inside the SDK, such as a collector that does not answer.
func logFailure(err error) { slog.Warn("telemetry failed", "error", err) }

// TracesAsked reports whether the environment names an exporter of traces, and so whether spans are worth making.
func TracesAsked() bool { return asked("TRACES") }

// startTraces sets a tracer provider that exports where the environment says. Where it says nothing, the global one
// stays as it is: it records nothing and hands an incoming trace on.
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

// meterProvider returns a provider read by Prometheus through the handler and, where the environment says so, by an
// exporter of its own.
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

// asked reports whether the environment names an exporter for signal, "TRACES" or "METRICS". The specification's
// default, OTLP to localhost, would have every program complain that nobody listens there.
func asked(signal string) bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return false
	}
	if name := os.Getenv("OTEL_" + signal + "_EXPORTER"); name != "" {
		return name != "none"
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}
