package boot

import (
	"context"
	"io"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// logs makes the loggers of a program. All write JSON lines, and share the
// record of what was logged lately.
type logs struct {
	lines   slog.Handler
	windows *windows
}

func newLogs(lines slog.Handler) *logs { return &logs{lines, &windows{open: make(map[string]*window)}} }

// newLines writes JSON lines in the form that LOG_FORMAT names.
func newLines(w io.Writer, c config.Config) slog.Handler {
	options := &slog.HandlerOptions{Level: slog.Level(c.LogLevel), ReplaceAttr: errorAttr}
	if c.LogFormat == config.CloudLog {
		options.ReplaceAttr = cloudAttr(c.Project)
	}
	return slog.NewJSONHandler(w, options)
}

// plain is for errors that do not come from the database, although their texts
// may be the same.
func (l *logs) plain() *slog.Logger { return slog.New(telemetry.LogHandler(l.lines)) }

// log is for most of a program. Only the errors of an outage are throttled.
func (l *logs) log() *slog.Logger { return l.throttled(math.MinInt) }

// calls is for the API. Each warning is throttled too: under load thousands of
// calls are refused.
func (l *logs) calls() *slog.Logger { return l.throttled(slog.LevelWarn) }

func (l *logs) throttled(most slog.Level) *slog.Logger {
	return slog.New(telemetry.LogHandler(throttle{Handler: l.lines, windows: l.windows, levelMax: most}))
}

// river drops what River logs in ordinary operation, and throttles all else:
// each producer logs an error at every poll. An error is logged as a warning,
// because River tries again and no promise depends on it.
func (l *logs) river() *slog.Logger {
	h := throttle{Handler: l.lines, windows: l.windows, levelMax: slog.LevelError, river: true}
	return slog.New(telemetry.LogHandler(h)).With("component", "river")
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

// errorAttr gives errors one name: River logs some of them as err.
func errorAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == "err" {
		a.Key = "error"
	}
	return a
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
		a = errorAttr(groups, a)
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

// throttleEvery is how often records that share a window are logged.
const throttleEvery = 10 * time.Second

// outageKey is the window of the errors by which the database does not answer
// as it should: an outage causes thousands, of many messages.
const outageKey = "outage"

// throttle logs a record that shares a window with others at most once per
// throttleEvery: the first immediately, and then the latest, with the number of
// the others as left_out.
type throttle struct {
	slog.Handler
	windows *windows
	// Records up to levelMax share a window with those of the same message.
	levelMax slog.Level
	river    bool // the records are River's
}

func (h throttle) Enabled(ctx context.Context, level slog.Level) bool {
	return (!h.river || level >= slog.LevelWarn) && h.Handler.Enabled(ctx, level)
}

func (h throttle) Handle(ctx context.Context, r slog.Record) error {
	key := h.key(r)
	if h.river || key == outageKey {
		r.Level = min(r.Level, slog.LevelWarn)
	}
	if key == "" {
		return h.Handler.Handle(ctx, r)
	}
	return h.windows.handle(ctx, key, h.Handler, r)
}

// key names the record's window; it is empty if the record is always logged, as
// is an error that names a request. River logs most errors as text, so its
// records belong to an outage that another error has begun.
func (h throttle) key(r slog.Record) string {
	var failure error
	named := false
	r.Attrs(func(a slog.Attr) bool {
		named = named || a.Key == "request_id"
		if failure == nil {
			failure = errorIn(a)
		}
		return true
	})
	switch {
	case r.Level >= slog.LevelWarn && !named && (pg.IsOutage(failure) || h.river && h.windows.isOpen(outageKey)):
		return outageKey
	case r.Level <= h.levelMax:
		return r.Message
	}
	return ""
}

func (h throttle) WithAttrs(attrs []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h throttle) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// windows are the records of the last throttleEvery. Their number is bounded by
// the number of messages in the code.
type windows struct {
	mu     sync.Mutex
	open   map[string]*window
	closed bool
}

// window counts the records since one was logged, and keeps the latest.
type window struct {
	end    *time.Timer
	count  int
	latest slog.Record
	next   slog.Handler
}

func (w *windows) isOpen(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.open[key] != nil
}

func (w *windows) handle(ctx context.Context, key string, next slog.Handler, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.open[key]; s != nil {
		s.count++
		s.latest, s.next = r.Clone(), next
		return nil
	}
	if !w.closed {
		w.begin(key)
	}
	return next.Handle(ctx, r)
}

func (w *windows) begin(key string) {
	w.open[key] = &window{end: time.AfterFunc(throttleEvery, func() { w.over(key) })}
}

// over ends a window. If more records came in it, over logs the latest, and the
// next window begins.
func (w *windows) over(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ended := w.open[key]
	delete(w.open, key)
	if ended != nil && ended.count > 0 { // nil once windows are closed
		w.begin(key)
		ended.log()
	}
}

func (s *window) log() {
	if s.count > 1 {
		s.latest.AddAttrs(slog.Int("left_out", s.count-1))
	}
	_ = s.next.Handle(context.Background(), s.latest) // a failure of the log cannot be logged
}

// close ends all windows, so that each record is logged or counted. Later
// records are logged immediately.
func (w *windows) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for key, s := range w.open {
		s.end.Stop()
		delete(w.open, key)
		if s.count > 0 {
			s.log()
		}
	}
}
