package boot

import "log/slog"

// cloudAttr renames what every line has to what Google Cloud Logging reads in structured logs, see
// https://cloud.google.com/logging/docs/structured-logging. Without a project, which a trace's name begins with, the trace is
// its id alone.
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
