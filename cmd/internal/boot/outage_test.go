package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/internal/sleep"
)

// newTestLogs returns the logs of a program, and what they write.
func newTestLogs() (*logs, *logged) {
	out := new(logged)
	return newLogs(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelInfo, ReplaceAttr: errorAttr})), out
}

func (l *logged) messages(t *testing.T) (messages []string) {
	t.Helper()
	for _, line := range l.lines(t) {
		messages = append(messages, line["msg"].(string))
	}
	return messages
}

// expect compares the messages so far.
func (l *logged) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := l.messages(t); !slices.Equal(got, want) {
		t.Errorf("messages\n%s\nwant\n%s\nof\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), l)
	}
}

// An outage of 24 s with 40 errors per second is logged in four lines, which
// count every error.
func TestOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out := newTestLogs()
		calls, river := logs.calls(), logs.river()
		for i := range 480 {
			calls.Error("a call was not served", "code", "overloaded", "error", fmt.Errorf("call %d: %w", i, io.ErrUnexpectedEOF))
			river.Error("Error fetching jobs", "err", "failed to connect to `host`")
			_ = sleep.For(t.Context(), 50*time.Millisecond)
		}
		_ = sleep.For(t.Context(), time.Minute)
		lines := out.lines(t)
		if len(lines) != 4 || lines[0]["msg"] != "a call was not served" || lines[0]["error"] != "call 0: unexpected EOF" || lines[0]["code"] != "overloaded" {
			t.Fatalf("want four lines, the first of call 0:\n%s", out)
		}
		counted := 0.
		for _, line := range lines {
			omitted, _ := line["left_out"].(float64)
			counted += 1 + omitted
			if line["level"] != "WARN" || line["error"] == nil {
				t.Errorf("want a warning with an error: %v", line)
			}
		}
		if counted != 960 {
			t.Errorf("the lines count %v errors, want 960", counted)
		}
	})
}

// Each outage is logged immediately.
func TestOutages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out := newTestLogs()
		logs.log().Warn("one", "error", io.EOF)
		_ = sleep.For(t.Context(), time.Hour)
		out.expect(t, "one")
		logs.log().Warn("two", "error", io.EOF)
		out.expect(t, "one", "two")
	})
}

// An error that an outage does not explain is logged unchanged, even during
// one.
func TestNoOutage(t *testing.T) {
	t.Parallel()
	for _, during := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			logs, out := newTestLogs()
			want := []string{"one", "two", "three", "four", "five", "six", "seven"}
			if during {
				logs.log().Warn("a tick failed", "error", io.EOF)
				want = append([]string{"a tick failed"}, want...)
			}
			log := logs.log()
			log.Info("one", "error", io.EOF)
			log.Warn("two", "error", &pgconn.PgError{Code: "23505"})
			log.Error("three", "error", context.Canceled)
			log.Warn("four", "error", "unexpected EOF")
			log.Error("five", "request_id", "a", "error", io.EOF) // the line names a request
			log.Error("six")
			logs.plain().Warn("seven", "error", &net.OpError{Err: errors.New("the collector's")})
			_ = sleep.For(t.Context(), 3*time.Second)
			out.expect(t, want...)
			if lines := out.lines(t); lines[len(lines)-2]["level"] != "ERROR" {
				t.Errorf("an error is logged as %v", lines[len(lines)-2])
			}
		})
	}
}

// An error in a group, under any name, is found.
func TestOutageInGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out := newTestLogs()
		log := logs.log().WithGroup("lane").With("slot", 1)
		for range 2 {
			log.Warn("a tick failed", slog.Group("inner", "failure", io.EOF))
		}
		out.expect(t, "a tick failed")
	})
}

// River's errors belong to an outage that another error has begun. Otherwise
// they are logged immediately.
func TestRiversErrors(t *testing.T) {
	t.Parallel()
	for _, during := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			logs, out := newTestLogs()
			want := []string{"Error fetching jobs", "Error electing"}
			if during {
				logs.log().Warn("a tick failed", "error", io.EOF)
				want = []string{"a tick failed"}
			}
			logs.river().Error("Error fetching jobs", "err", "unexpected EOF")
			logs.river().Error("Error electing", "err", "unexpected EOF")
			out.expect(t, want...)
		})
	}
}

// A program that ends logs what was left out, and logs later lines immediately.
func TestCloseDuringOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out := newTestLogs()
		log := logs.log()
		for _, message := range []string{"one", "two", "three"} {
			log.Warn(message, "error", io.EOF) //nolint:sloglint // each has a message of its own
		}
		logs.windows.close()
		log.Warn("late", "error", io.EOF)
		log.Warn("later", "error", io.EOF)
		_ = sleep.For(t.Context(), time.Minute)
		out.expect(t, "one", "three", "late", "later")
		if line := out.lines(t)[1]; line["left_out"] != 1. {
			t.Errorf("the last line before the end: %v", line)
		}
	})
}
