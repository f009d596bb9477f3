package boot

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// logs makes the loggers of a program. All write JSON lines, and share one
// record of the database's outages.
type logs struct {
	lines   slog.Handler
	outages *outages
}

func newLogs(lines slog.Handler) *logs { return &logs{lines, newOutages(lines)} }

// newLines writes JSON lines in the form that LOG_FORMAT names.
func newLines(w io.Writer, c config.Config) slog.Handler {
	options := &slog.HandlerOptions{Level: slog.Level(c.LogLevel)}
	if c.LogFormat == config.CloudLog {
		options.ReplaceAttr = cloudAttr(c.Project)
	}
	return slog.NewJSONHandler(w, options)
}

// plain is for errors that do not come from the database, although their texts
// may be the same.
func (l *logs) plain() *slog.Logger { return slog.New(telemetry.LogHandler(l.lines)) }

// log is for most of a program.
func (l *logs) log() *slog.Logger { return slog.New(telemetry.LogHandler(l.outages.handler(l.lines))) }

// calls is for the API. Each warning is logged at most once per throttleEvery:
// under load thousands of calls are refused.
func (l *logs) calls() *slog.Logger {
	return slog.New(telemetry.LogHandler(l.outages.handler(newThrottle(l.lines, slog.LevelWarn))))
}

// river drops what River logs in ordinary operation, and logs each of its
// warnings and errors at most once per throttleEvery: each producer logs one at
// every poll.
func (l *logs) river() *slog.Logger {
	h := outageHandler{newThrottle(l.lines, slog.LevelError), l.outages, true}
	return slog.New(riverHandler{telemetry.LogHandler(h)}).With("component", "river")
}

// handler passes on the records that no outage explains.
func (o *outages) handler(next slog.Handler) slog.Handler { return outageHandler{next, o, false} }

type outageHandler struct {
	slog.Handler
	outages *outages
	river   bool // the records are River's
}

func (h outageHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.outages.absorb(h.Handler, r, h.river) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return outageHandler{h.Handler.WithAttrs(attrs), h.outages, h.river}
}

func (h outageHandler) WithGroup(name string) slog.Handler {
	return outageHandler{h.Handler.WithGroup(name), h.outages, h.river}
}

// errorIn returns the error of an attribute or of its groups, nil without one.
func errorIn(a slog.Attr) error {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		for _, inner := range value.Group() {
			if err := errorIn(inner); err != nil {
				return err
			}
		}
		return nil
	}
	err, _ := value.Any().(error)
	return err
}

// riverHandler drops records below WARN, and gives each record its error as an
// error value: River logs most errors as text.
type riverHandler struct{ slog.Handler }

func (h riverHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h riverHandler) Handle(ctx context.Context, r slog.Record) error {
	record := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			a.Key = "error"
		}
		if a.Key == "error" && a.Value.Kind() == slog.KindString {
			a.Value = slog.AnyValue(textError(a.Value.String()))
		}
		record.AddAttrs(a)
		return true
	})
	return h.Handler.Handle(ctx, record)
}

func (h riverHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return riverHandler{h.Handler.WithAttrs(attrs)}
}

func (h riverHandler) WithGroup(name string) slog.Handler {
	return riverHandler{h.Handler.WithGroup(name)}
}

// textError is an error of which only the text is known. If the text names a
// SQLSTATE, package pg finds it.
type textError string

var sqlState = regexp.MustCompile(`\(SQLSTATE ([0-9A-Z]{5})\)`)

func (e textError) Error() string { return string(e) }

// Unwrap returns an error with the SQLSTATE that the text names, or nil.
func (e textError) Unwrap() error {
	if match := sqlState.FindStringSubmatch(string(e)); match != nil {
		return &pgconn.PgError{Code: match[1], Message: string(e)}
	}
	return nil
}

// cloudAttr renames the attributes of every line to the names that Google Cloud
// Logging reads in structured logs, see
// https://cloud.google.com/logging/docs/structured-logging. A trace's name
// begins with the project; without a project the trace is its id alone.
func cloudAttr(project string) func(groups []string, a slog.Attr) slog.Attr {
	prefix := ""
	if project != "" {
		prefix = "projects/" + project + "/traces/"
	}
	return func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) > 0 {
			return a
		}
		switch a.Key {
		case slog.LevelKey:
			if level, ok := a.Value.Any().(slog.Level); ok {
				return slog.String("severity", severity(level))
			}
		case slog.MessageKey:
			a.Key = "message"
		case "trace_id":
			return slog.String("logging.googleapis.com/trace", prefix+a.Value.String())
		case "span_id":
			a.Key = "logging.googleapis.com/spanId"
		case "trace_sampled":
			a.Key = "logging.googleapis.com/trace_sampled"
		}
		return a
	}
}

func severity(level slog.Level) string {
	switch {
	case level < slog.LevelInfo:
		return "DEBUG"
	case level < slog.LevelWarn:
		return "INFO"
	case level < slog.LevelError:
		return "WARNING"
	default:
		return "ERROR"
	}
}

// throttleEvery is how often a message is logged.
const throttleEvery = time.Second

// throttle passes on each message at most once per throttleEvery, unless its
// level is higher than a given one. Of the records in between it passes on the
// latest when that time is over, with the number of the others as left_out.
type throttle struct {
	slog.Handler
	levelMax slog.Level
	windows  *windows
}

func newThrottle(next slog.Handler, most slog.Level) slog.Handler {
	return throttle{next, most, &windows{open: make(map[string]*window)}}
}

// windows are the messages of the last throttleEvery. Their number is bounded
// by the number of messages in the code.
type windows struct {
	mu   sync.Mutex
	open map[string]*window
}

// window counts how often a message came since it was logged, and keeps its
// latest record.
type window struct {
	count  int
	latest slog.Record
	next   slog.Handler
}

func (h throttle) Handle(ctx context.Context, r slog.Record) error {
	if r.Level > h.levelMax {
		return h.Handler.Handle(ctx, r)
	}
	h.windows.mu.Lock()
	defer h.windows.mu.Unlock()
	if s := h.windows.open[r.Message]; s != nil {
		s.count++
		s.latest, s.next = r.Clone(), h.Handler
		return nil
	}
	h.windows.open[r.Message] = new(window)
	time.AfterFunc(throttleEvery, func() { h.windows.over(r.Message) })
	return h.Handler.Handle(ctx, r)
}

// over ends a message's window. If more records came in it, over logs the
// latest, and the next window begins.
func (w *windows) over(message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.open[message]
	if ended.count == 0 {
		delete(w.open, message)
		return
	}
	w.open[message] = new(window)
	time.AfterFunc(throttleEvery, func() { w.over(message) })
	if ended.count > 1 {
		ended.latest.AddAttrs(slog.Int("left_out", ended.count-1))
	}
	_ = ended.next.Handle(context.Background(), ended.latest) // a failure of the log cannot be logged
}

func (h throttle) WithAttrs(attrs []slog.Attr) slog.Handler {
	return throttle{h.Handler.WithAttrs(attrs), h.levelMax, h.windows}
}

func (h throttle) WithGroup(name string) slog.Handler {
	return throttle{h.Handler.WithGroup(name), h.levelMax, h.windows}
}
