package boot

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast/holdfast/cmd/internal/config"
)

// The fields are those of https://cloud.google.com/logging/docs/structured-logging.
func TestCloudLog(t *testing.T) {
	t.Parallel()
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled,
	}))
	for project, want := range map[string]string{
		"": "01000000000000000000000000000000", "shop": "projects/shop/traces/01000000000000000000000000000000",
	} {
		var out bytes.Buffer
		lines := newLines(&out, config.Config{LogFormat: config.CloudLog, LogLevel: config.Level(slog.LevelDebug), Project: project})
		log := newLogs(lines).log()
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			log.Log(ctx, level, "held", "lane", "hot")
		}
		var severities []string
		for line := range strings.Lines(out.String()) {
			var got map[string]any
			if err := json.Unmarshal([]byte(line), &got); err != nil {
				t.Fatal(err)
			}
			if _, err := time.Parse(time.RFC3339Nano, got["time"].(string)); err != nil {
				t.Error(err)
			}
			severities = append(severities, got["severity"].(string))
			delete(got, "time")
			delete(got, "severity")
			if diff := cmp.Diff(map[string]any{
				"message": "held", "lane": "hot", "logging.googleapis.com/trace": want,
				"logging.googleapis.com/spanId": "0200000000000000", "logging.googleapis.com/trace_sampled": true,
			}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
		if diff := cmp.Diff([]string{"DEBUG", "INFO", "WARNING", "ERROR"}, severities); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// The line a program dies with has a severity too.
func TestCloudLogOfTheEnd(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	process := Process{Env: envconfig.MapLookuper(map[string]string{"LOG_FORMAT": "cloud"}), Stderr: &stderr}
	if code := exitCode(t.Context(), "api", errors.New("DATABASE_URL is missing"), process); code != 1 {
		t.Errorf("exit code %d", code)
	}
	var got map[string]any
	if err := json.Unmarshal(stderr.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "time")
	if diff := cmp.Diff(map[string]any{"severity": "ERROR", "message": "DATABASE_URL is missing", "program": "api"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// STOP_WITHIN bounds all of the end: what is in flight, what closes after it, and telemetry.
func TestStopTimes(t *testing.T) {
	t.Parallel()
	p := &Program{Config: config.Config{StopWithin: 9 * time.Second}}
	working, closing := p.stopTimes()
	if flush := p.flushTime(); working+closing+flush != 9*time.Second || working < 6*time.Second || flush != time.Second {
		t.Errorf("%s, %s and %s, want 9s in all", working, closing, flush)
	}
}
