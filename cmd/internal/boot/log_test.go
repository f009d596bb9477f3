package boot

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestSeldom(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := &Program{Log: newLog(&out, slog.LevelDebug)}
	log := p.riverLog()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 30 { // three seconds
		for _, message := range []string{"no answer", "no answer either"} {
			r := slog.NewRecord(start.Add(time.Duration(i)*100*time.Millisecond), slog.LevelError, message, 0)
			if err := log.Handler().Handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	log.InfoContext(t.Context(), "working")
	if lines := strings.Count(out.String(), "\n"); lines != 6 || strings.Contains(out.String(), "working") {
		t.Errorf("%d lines, want one a second of each complaint and nothing else:\n%s", lines, &out)
	}
}
