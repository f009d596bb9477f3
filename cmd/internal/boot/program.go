package boot

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/telemetry/export"
)

// Program is what all parts of a program share.
type Program struct {
	// Name is the program's name, such as holdfast-api, in logs, telemetry and
	// pg_stat_activity.
	Name    string
	Config  config.Config
	Log     *slog.Logger
	Metrics http.Handler

	logs        *logs
	stop        func(context.Context) error
	startBudget *startBudget
	state       *stateGauges
	metrics     *metricsServer
	// cells are the programs of the cells that CELLS names, and cell is the name
	// of one of them.
	cells []*Program
	cell  string
	// overviews are what the cells look like, for the dashboard; nil with one.
	overviews *ops.Cells
}

// NewProgram reads the environment and begins the log (JSON lines on stderr)
// and telemetry. Close must be called last.
func NewProgram(ctx context.Context, name string, p Process) (*Program, error) {
	c, err := config.Load(ctx, p.Env)
	if err != nil {
		return nil, err
	}
	cells, err := cellsOf(&c.Database, p.Cell)
	if err != nil {
		return nil, err
	}
	logs := newLogs(newLines(p.Stderr, c))
	slog.SetDefault(logs.plain()) // errors of the telemetry SDK; its collector is not the database
	stop, metrics, err := export.Setup(ctx, name, ThisVersion())
	if err != nil {
		return nil, err
	}
	program := &Program{
		Name: name, Config: c, Log: logs.log(), Metrics: metrics,
		logs: logs, stop: stop, startBudget: &startBudget{left: c.Database.WaitMax}, state: &stateGauges{}, metrics: &metricsServer{},
	}
	program.addCells(cells)
	setGCPercent(len(program.inCells()))
	return program, nil
}

// Close logs the number of records that were left out, and sends the telemetry
// that is still buffered, within its part of STOP_WITHIN.
func (p *Program) Close() {
	p.logs.windows.close()
	p.closeMetrics()
	ctx, cancel := context.WithTimeout(context.Background(), p.flushTime())
	defer cancel()
	if err := p.stop(ctx); err != nil {
		p.logs.plain().WarnContext(ctx, "not all telemetry was sent", "error", err)
	}
}

// stopTimes divides STOP_WITHIN, without the time of the flush. working is how
// long calls in flight and running wakes may take to end. closing is what is
// left for what closes after them, including the last group's commit.
func (p *Program) stopTimes() (working, closing time.Duration) {
	within := p.Config.StopWithin - p.flushTime()
	working = within * 7 / 9
	return working, within - working
}

// flushTime is how long a program that ends waits to send its buffered
// telemetry.
func (p *Program) flushTime() time.Duration { return p.Config.StopWithin / 9 }
