package boot

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast/holdfast/internal/pgerr"
)

// logged is what was logged. It is safe for concurrent use.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// lines are the lines so far, without their times.
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

func TestTextError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"FATAL: terminating connection due to administrator command (SQLSTATE 57P01)": "57P01",
		"unexpected EOF":              "",
		"ERROR: broken (SQLSTATE 1)":  "",
		"wrapped: (SQLSTATE 23505): ": "23505",
	} {
		if got := pgerr.Code(textError(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// River's records keep what they say, with the error under one name.
func TestRiverRecord(t *testing.T) {
	t.Parallel()
	var out logged
	log := newLogs(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})).river()
	log.Error("Unable to work", "err", "ERROR: duplicate key (SQLSTATE 23505)", "queue", "normal")
	line := out.lines(t)[0]
	if line["error"] != "ERROR: duplicate key (SQLSTATE 23505)" || line["queue"] != "normal" || line["component"] != "river" {
		t.Errorf("%v", line)
	}
	if keys := slices.Sorted(maps.Keys(line)); len(keys) != 5 {
		t.Errorf("keys %v, want 5", keys)
	}
}
