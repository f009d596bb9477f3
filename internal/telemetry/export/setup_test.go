package export

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast/holdfast/internal/telemetry"
)

func TestMain(m *testing.M) {
	run.err = errors.Join(
		os.Unsetenv("OTEL_SDK_DISABLED"),
		os.Setenv("OTEL_SERVICE_NAME", "renamed"),
		useProgram())
	os.Exit(m.Run())
}

// run is what a program exported between Setup and shutdown. The providers are
// global, so a process can do this once only.
var run struct {
	page     string            // of /metrics
	received map[string]string // what the collector received, by path
	err      error
}

func useProgram() error {
	var mu sync.Mutex
	received := map[string]string{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		received[r.URL.Path] += string(body)
	}))
	defer collector.Close()
	if err := os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL); err != nil {
		return err
	}
	ctx := context.Background()
	shutdown, metrics, err := Setup(ctx, "test", "1.2.3")
	if err != nil {
		return err
	}
	_, done := telemetry.Verb(telemetry.WithCorrelation(ctx, "corr-1"), "inventory.hold")
	done("out_of_stock", nil)
	_, done = telemetry.Verb(ctx, "inventory.hold")
	done("", errors.New("connection lost"))
	telemetry.JobSucceeded(ctx, "sweep")

	answer := httptest.NewRecorder()
	metrics.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", nil))
	run.page = answer.Body.String()
	err = shutdown(ctx)
	mu.Lock()
	defer mu.Unlock()
	run.received = received
	return errors.Join(err, os.Unsetenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
}

func TestSetupServesPrometheus(t *testing.T) {
	if run.err != nil {
		t.Fatal(run.err)
	}
	for _, want := range []string{
		`outcome="out_of_stock",verb="inventory.hold"} 1`,
		`outcome="error",verb="inventory.hold",le="+Inf"} 1`,
		`holdfast_verb_duration_seconds_count{`,
		`holdfast_job_successes_total{`,
		`pass="sweep"} 1`,
		`service_name="renamed"`,
		`service_version="1.2.3"`,
		`service_instance_id="`,
		`go_memory_used_bytes`,
		`process_resident_memory_bytes`,
	} {
		if !strings.Contains(run.page, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if t.Failed() {
		t.Log(run.page)
	}
}

func TestSetupSendsWhereTheEnvironmentSays(t *testing.T) {
	if run.err != nil {
		t.Fatal(run.err)
	}
	for path, want := range map[string]string{"/v1/traces": "corr-1", "/v1/metrics": "holdfast.verb.duration"} {
		if !strings.Contains(run.received[path], want) {
			t.Errorf("the collector got %q at %s, want it to contain %q", run.received[path], path, want)
		}
	}
}

func TestSetupRefusesUnknownExporter(t *testing.T) {
	for _, variable := range []string{"OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "pigeon")
			if _, _, err := Setup(t.Context(), "test", "1.2.3"); err == nil || !strings.Contains(err.Error(), variable) {
				t.Fatalf("Setup with %s=pigeon: %v, want an error that names the variable", variable, err)
			}
		})
	}
}

// A variable that cannot be read is an error that names it and contains no part
// of its value.
func TestSetupRefusesWhatItCannotRead(t *testing.T) {
	for variable, values := range map[string][]string{
		"OTEL_EXPORTER_OTLP_HEADERS":        {"api-key s3cret", "api-key=%zzs3cret", "a=b,s3cret", " =s3cret"},
		"OTEL_EXPORTER_OTLP_TRACES_HEADERS": {"s3cret"},
		"OTEL_EXPORTER_OTLP_ENDPOINT":       {"http://u:s3cret@127.0.0.1:port"},
		"OTEL_EXPORTER_OTLP_TIMEOUT":        {"s3cret"},
		"OTEL_EXPORTER_OTLP_CERTIFICATE":    {"/s3cret"},
		"OTEL_METRIC_EXPORT_INTERVAL":       {"s3cret"},
		"OTEL_RESOURCE_ATTRIBUTES":          {"=,"},
	} {
		for _, value := range values {
			t.Run(variable+" "+value, func(t *testing.T) {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
				t.Setenv(variable, value)
				_, _, err := Setup(t.Context(), "test", "1.2.3")
				if err == nil || !strings.Contains(err.Error(), variable) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("%v, want an error that names %s without its value", err, variable)
				}
			})
		}
	}
}

func TestAsked(t *testing.T) {
	for _, tc := range []struct {
		name            string
		env             map[string]string
		traces, metrics bool
	}{
		{"nothing", nil, false, false},
		{"an endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, true, true},
		{"an endpoint for traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318"}, true, false},
		{"an exporter", map[string]string{"OTEL_METRICS_EXPORTER": "console"}, false, true},
		{"no exporter", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, false, true},
		{"disabled", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			if traces, metrics := asked("TRACES"), asked("METRICS"); traces != tc.traces || metrics != tc.metrics {
				t.Errorf("asked for traces %t, metrics %t; want %t, %t", traces, metrics, tc.traces, tc.metrics)
			}
		})
	}
}
