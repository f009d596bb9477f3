package boot

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sethvargo/go-envconfig"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/sleep"
)

// logged is the log output of a program.
type logged struct{ pgtest.Log }

// lines returns the lines so far, without their times.
func (l *logged) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(l.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		delete(line, "time")
		lines = append(lines, line)
	}
	return lines
}

// River's records keep their content, with the error under one name.
func TestRiverRecord(t *testing.T) {
	t.Parallel()
	logs, out := newTestLogs()
	logs.river().Error("Unable to work", "err", "ERROR: duplicate key (SQLSTATE 23505)", "queue", "normal")
	line := out.lines(t)[0]
	if line["error"] != "ERROR: duplicate key (SQLSTATE 23505)" || line["queue"] != "normal" || line["component"] != "river" || line["level"] != "WARN" {
		t.Errorf("%v", line)
	}
	if keys := slices.Sorted(maps.Keys(line)); len(keys) != 5 {
		t.Errorf("keys %v, want 5", keys)
	}
}

// The fields are those of
// https://cloud.google.com/logging/docs/structured-logging.
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

// The last line of a program that fails has a severity too.
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

// STOP_WITHIN bounds the whole stop: open calls, the closing after them, and
// telemetry.
func TestStopTimes(t *testing.T) {
	t.Parallel()
	p := &Program{Config: config.Config{StopWithin: 9 * time.Second}}
	working, closing := p.stopTimes()
	if flush := p.flushTime(); working+closing+flush != 9*time.Second || working < 6*time.Second || flush != time.Second {
		t.Errorf("%s, %s and %s, want 9s in all", working, closing, flush)
	}
}

// Each message of River is logged immediately, and then once per throttleEvery
// with the number of those left out.
func TestThrottle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logged
		logs := newLogs(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		log := logs.river()
		for range 25 { // 25 s
			log.ErrorContext(t.Context(), "no answer")
			log.WarnContext(t.Context(), "no answer either")
			_ = sleep.For(t.Context(), time.Second)
		}
		log.InfoContext(t.Context(), "working")
		_ = sleep.For(t.Context(), time.Minute)
		counts := make(map[string]int)
		for _, line := range out.lines(t) {
			left, _ := line["left_out"].(float64)
			counts[line["msg"].(string)] += 1 + int(left)
		}
		if want := map[string]int{"no answer": 25, "no answer either": 25}; !maps.Equal(counts, want) {
			t.Errorf("the lines count %v, want %v", counts, want)
		}
		if n := len(out.lines(t)); n != 8 {
			t.Errorf("%d lines, want 4 of each message:\n%s", n, &out)
		}
	})
}

// A refused call is throttled in the log, a failed one always: its answer
// refers to the log.
func TestCallsLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logged
		log := newLogs(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})).calls()
		for range 100 {
			log.Warn("a call was not served", "error", errors.New("too much to do"))
			log.Error("a call failed", "error", errors.New("a fault"))
		}
		_ = sleep.For(t.Context(), time.Minute)
		if n := len(out.lines(t)); n != 2+100 {
			t.Errorf("%d lines, want 2 of the warnings and 100 of the errors", n)
		}
	})
}
