package boot

import (
	"context"
	"log/slog"
	"net/http"

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

	logs     *logs
	stop     func(context.Context) error
	patience *patience
	state    *stateGauges
	metrics  *metricsServer
}

// NewProgram reads the environment and begins the log (JSON lines on stderr) and telemetry. Call Close last.
func NewProgram(ctx context.Context, name string, p Process) (*Program, error) {
	c, err := config.Load(ctx, p.Env)
	if err != nil {
		return nil, err
	}
	logs := newLogs(newLines(p.Stderr, c))
	slog.SetDefault(logs.plain()) // what the telemetry SDK complains of; its collector is no database
	stop, metrics, err := export.Setup(ctx, name, ThisVersion())
	if err != nil {
		return nil, err
	}
	return &Program{
		Name: name, Config: c, Log: logs.log(), Metrics: metrics,
		logs: logs, stop: stop, patience: &patience{left: c.Database.WaitMax}, state: &stateGauges{}, metrics: &metricsServer{},
	}, nil
}

// Close logs what an outage left out, and sends what telemetry still holds, within its part of STOP_WITHIN.
func (p *Program) Close() {
	p.logs.outages.close()
	p.closeMetrics()
	ctx, cancel := context.WithTimeout(context.Background(), p.flushTime())
	defer cancel()
	if err := p.stop(ctx); err != nil {
		p.logs.plain().WarnContext(ctx, "telemetry was not sent to its end", "error", err)
	}
}
