package boot

import (
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"
)

// Each message of River's is logged at once, and then once per second with the number of those left out.
func TestSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logged
		logs := newLogs(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		log := logs.river()
		for range 25 { // 2.5 s
			log.ErrorContext(t.Context(), "no answer")
			log.WarnContext(t.Context(), "no answer either")
			_ = sleep(t.Context(), 100*time.Millisecond)
		}
		log.InfoContext(t.Context(), "working")
		_ = sleep(t.Context(), time.Minute)
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

// A refused call is logged seldom, a failed one always: its answer refers to the log.
func TestCallsLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out logged
		log := newLogs(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})).calls()
		for range 100 {
			log.Warn("a call was not served", "error", errors.New("too much to do"))
			log.Error("a call failed", "error", errors.New("a fault"))
		}
		_ = sleep(t.Context(), time.Minute)
		if n := len(out.lines(t)); n != 2+100 {
			t.Errorf("%d lines, want 2 of the warnings and 100 of the errors", n)
		}
	})
}
