package boot

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// logs makes the loggers of a program. All write JSON lines, and share one account of the database's outages.
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

// plain is for errors that do not come from the database, although they may look the same.
func (l *logs) plain() *slog.Logger { return slog.New(telemetry.LogHandler(l.lines)) }

// log is for most of a program.
func (l *logs) log() *slog.Logger { return slog.New(telemetry.LogHandler(l.outages.handler(l.lines))) }

// calls is for the API. Each warning is logged at most once each seldomEvery: under load thousands of calls are refused.
func (l *logs) calls() *slog.Logger {
	return slog.New(telemetry.LogHandler(l.outages.handler(newSeldom(l.lines, slog.LevelWarn))))
}

// river leaves out what River logs in ordinary operation, and logs each of its warnings and errors at most once each
// seldomEvery: each producer makes one at every poll.
func (l *logs) river() *slog.Logger {
	h := l.outages.handler(newSeldom(l.lines, slog.LevelError))
	return slog.New(riverHandler{telemetry.LogHandler(h)}).With("component", "river")
}

// handler passes on the records that no outage explains.
func (o *outages) handler(next slog.Handler) slog.Handler { return outageHandler{next, o} }

type outageHandler struct {
	slog.Handler
	outages *outages
}

func (h outageHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn && h.outages.take(h.Handler, r) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return outageHandler{h.Handler.WithAttrs(attrs), h.outages}
}

func (h outageHandler) WithGroup(name string) slog.Handler {
	return outageHandler{h.Handler.WithGroup(name), h.outages}
}

// errorIn is the error of an attribute, or of one in its groups; nil if there is none.
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

// riverHandler drops what is below WARN, and gives each record its error as an error: River logs most of them as text.
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
	for _, end := range gaveUp {
		if strings.HasSuffix(r.Message, end) {
			record.AddAttrs(slog.Any("error", textError("River logs none")))
		}
	}
	return h.Handler.Handle(ctx, record)
}

// gaveUp are the ends of messages that follow several errors of River's statements and have none themselves.
var gaveUp = []string{"Too many errors; giving up", "Failed to cleanly shutdown producer after all attempts"}

func (h riverHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return riverHandler{h.Handler.WithAttrs(attrs)}
}

func (h riverHandler) WithGroup(name string) slog.Handler {
	return riverHandler{h.Handler.WithGroup(name)}
}

// textError is an error of which only the text is known. If that names a SQLSTATE, pgerr finds it.
type textError string

var sqlState = regexp.MustCompile(`\(SQLSTATE ([0-9A-Z]{5})\)`)

func (e textError) Error() string { return string(e) }

// Unwrap is an error with the SQLSTATE that the text names, or nil.
func (e textError) Unwrap() error {
	if match := sqlState.FindStringSubmatch(string(e)); match != nil {
		return &pgconn.PgError{Code: match[1], Message: string(e)}
	}
	return nil
}

func (e textError) code() string { return pgerr.Code(e) }
