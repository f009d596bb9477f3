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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	beginLine = "the database does not answer as it should: an outage begins"
	onLine    = "the outage of the database goes on"
	overLine  = "the database answers again: the outage is over"
	endLine   = "the program ends during an outage of the database"
)

// database is a database that a test can break.
type database struct{ broken atomic.Bool }

func (d *database) ask(context.Context) error {
	if d.broken.Load() {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// onDatabase returns the logs of a program on a database that answers.
func onDatabase() (*logs, *logged, *database) {
	out, db := new(logged), new(database)
	logs := newLogs(slog.NewJSONHandler(out, &slog.HandlerOptions{Level: slog.LevelInfo}))
	logs.outages.probeWith(db.ask)
	return logs, out, db
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
		logs, out, db := onDatabase()
		defer logs.outages.close()
		db.broken.Store(true)
		calls, river := logs.calls(), logs.river()
		for i := range 480 {
			calls.Warn("a call was not served", "code", "overloaded", "error", fmt.Errorf("call %d: %w", i, io.ErrUnexpectedEOF))
			river.Error("Error fetching jobs", "err", "failed to connect to `host`")
			_ = sleep.For(t.Context(), 50*time.Millisecond)
		}
		db.broken.Store(false)
		_ = sleep.For(t.Context(), time.Minute)
		out.expect(t, beginLine, onLine, onLine, overLine)
		lines := out.lines(t)
		if lines[0]["error"] != "call 0: unexpected EOF" || lines[0]["code"] != "overloaded" || lines[0]["first"] != "a call was not served" || lines[0]["level"] != "WARN" {
			t.Errorf("the first line: %v", lines[0])
		}
		omitted := 0.
		for _, line := range lines[1:] {
			omitted += line["left_out"].(float64)
		}
		if last := lines[3]; omitted != 959 || last["errors"] != 960. || last["level"] != "INFO" || last["lasted"] != "23.95s" {
			t.Errorf("%v left out, the last line: %v", omitted, last)
		}
		if latest, _ := lines[1]["latest"].(map[string]any); latest["msg"] == nil || latest["error"] == nil {
			t.Errorf("latest: %v", lines[1])
		}
	})
}

// An outage does not end because no more errors occur: the database must
// answer. Until then nothing is logged.
func TestQuietOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out, db := onDatabase()
		defer logs.outages.close()
		db.broken.Store(true)
		logs.log().Warn("a tick failed", "error", io.EOF)
		_ = sleep.For(t.Context(), time.Hour)
		out.expect(t, beginLine)
		db.broken.Store(false)
		_ = sleep.For(t.Context(), 10*time.Second)
		out.expect(t, beginLine, overLine)
		logs.log().Warn("a tick failed", "error", io.EOF) // another outage
		_ = sleep.For(t.Context(), 10*time.Second)
		out.expect(t, beginLine, overLine, beginLine, overLine)
	})
}

// An error that an outage does not explain is logged unchanged, even during
// one.
func TestNoOutage(t *testing.T) {
	t.Parallel()
	for _, during := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			logs, out, db := onDatabase()
			defer logs.outages.close()
			want := []string{"one", "two", "three", "four", "five", "six", "seven"}
			if during {
				db.broken.Store(true)
				logs.log().Warn("a tick failed", "error", io.EOF)
				want = append([]string{beginLine}, want...)
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
		})
	}
}

// An error in a group, under any name, is found.
func TestOutageInGroup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out, _ := onDatabase()
		defer logs.outages.close()
		logs.log().WithGroup("lane").With("slot", 1).Warn("a tick failed", slog.Group("inner", "failure", io.EOF))
		out.expect(t, beginLine)
	})
}

// Errors that River logs as text belong to an outage if the database does not
// answer, or another error has begun one. If not, they are logged immediately.
func TestRiversTexts(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text   string
		broken bool // the database does not answer
		during bool // another error began an outage
		want   []string
	}{
		"an outage": {"unexpected EOF", true, false, []string{beginLine}},
		"during":    {"unexpected EOF", false, true, []string{beginLine, overLine}},
		"code":      {"FATAL: shut down (SQLSTATE 57P01)", false, false, []string{beginLine, overLine}},
		"none":      {"unexpected EOF", false, false, []string{"Error fetching jobs"}},
		"a bug":     {"ERROR: duplicate key (SQLSTATE 23505)", true, false, []string{"Error fetching jobs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				logs, out, db := onDatabase()
				defer logs.outages.close()
				db.broken.Store(tc.broken)
				if tc.during {
					logs.log().Warn("a tick failed", "error", io.EOF)
				}
				logs.river().Error("Error fetching jobs", "err", tc.text)
				if !tc.broken && tc.want[0] != beginLine {
					out.expect(t, tc.want...) // it does not wait
				}
				_ = sleep.For(t.Context(), 10*time.Second)
				out.expect(t, tc.want...)
			})
		})
	}
}

// Errors of a pool that the program has closed are not an outage.
func TestClosedPoolIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out, _ := onDatabase()
		defer logs.outages.close()
		logs.outages.probeWith(func(context.Context) error { return puddle.ErrClosedPool })
		logs.river().Error("Error fetching jobs", "err", "closed pool")
		_ = sleep.For(t.Context(), 5*time.Second)
		out.expect(t, "Error fetching jobs")
	})
}

// A program that ends logs the number of lines left out, and logs later lines
// at once.
func TestCloseDuringOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out, db := onDatabase()
		db.broken.Store(true)
		log := logs.log()
		for range 3 {
			log.Warn("a tick failed", "error", io.EOF)
		}
		logs.outages.close()
		log.Warn("late", "error", io.EOF)
		out.expect(t, beginLine, endLine, "late")
		if line := out.lines(t)[1]; line["left_out"] != 2. || line["errors"] != 3. {
			t.Errorf("the last line: %v", line)
		}
	})
}

// An error of River whose probe is under way when the program ends is logged,
// and the end does not wait for the database.
func TestCloseDuringProbe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs, out, _ := onDatabase()
		logs.outages.probeWith(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		var logging sync.WaitGroup
		logging.Go(func() { logs.river().Error("Error fetching jobs", "err", "unexpected EOF") })
		synctest.Wait()
		logs.outages.close()
		logging.Wait()
		out.expect(t, "Error fetching jobs")
	})
}
