package boot

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/telemetry/export"
)

// Program is what every part of a program uses.
type Program struct {
	// Name is the program's, as in holdfast-api: in logs, telemetry, and pg_stat_activity.
	Name    string
	Config  config.Config
	Log     *slog.Logger
	Metrics http.Handler

	stop     func(context.Context) error
	patience *patience
}

// NewProgram reads the environment and begins the log (JSON lines on stderr) and telemetry. Call Close last.
func NewProgram(ctx context.Context, name string, p Process) (*Program, error) {
	c, err := config.Load(ctx, p.Env)
	if err != nil {
		return nil, err
	}
	stop, metrics, err := export.Setup(ctx, name)
	if err != nil {
		return nil, err
	}
	log := newLog(p.Stderr, slog.Level(c.LogLevel))
	slog.SetDefault(log) // what the telemetry SDK complains of
	return &Program{
		Name: name, Config: c, Log: log, Metrics: metrics, stop: stop, patience: &patience{left: c.Database.WaitMax},
	}, nil
}

// telemetryFlush is how long a program waits at its end for what it still has to export.
const telemetryFlush = time.Second

// Close sends what telemetry still holds.
func (p *Program) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), telemetryFlush)
	defer cancel()
	if err := p.stop(ctx); err != nil {
		p.Log.WarnContext(ctx, "telemetry was not sent to its end", "error", err)
	}
}
