package boot

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/cmd/internal/config"
	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// cellsOf returns the cells that CELLS names, or the one of them that the
// command line names; none without CELLS.
func cellsOf(c *config.Database, only string) ([]config.Cell, error) {
	list, err := c.List()
	switch {
	case err != nil:
		return nil, err
	case c.Cells == "" && (only == "" || only == config.MainCell):
		return nil, nil
	case only == "":
		return list, nil
	}
	for _, cell := range list {
		if cell.Name == only && c.Cells != "" {
			return []config.Cell{cell}, nil
		}
	}
	return nil, &UsageError{fmt.Sprintf("--cell %s: CELLS does not name it", only)}
}

// addCells adds a program for each cell.
func (p *Program) addCells(list []config.Cell) {
	if len(list) > 1 {
		p.overviews = &ops.Cells{}
	}
	for _, cell := range list {
		own := *p
		own.cell, own.Config.Database.URL = cell.Name, cell.URL
		own.Log, own.state = p.Log.With("cell", cell.Name), &stateGauges{cell: cell.Name}
		p.cells = append(p.cells, &own)
	}
}

// inCells returns the program of each cell: the program itself, where
// DATABASE_URL names the only one.
func (p *Program) inCells() []*Program {
	if p.cells == nil {
		return []*Program{p}
	}
	return p.cells
}

// only returns the program of the only cell.
func (p *Program) only() (*Program, error) {
	cells := p.inCells()
	if len(cells) == 1 {
		return cells[0], nil
	}
	names := make([]string, len(cells))
	for i, own := range cells {
		names[i] = own.cell
	}
	return nil, &UsageError{"CELLS names several databases, and the command works in one: name it with --cell (" + strings.Join(names, ", ") + ")"}
}

// inCell adds the name of the cell to an error, where CELLS names it.
func (p *Program) inCell(err error) error {
	if p.cell == "" || err == nil {
		return err
	}
	return fmt.Errorf("cell %s: %w", p.cell, err)
}

// named adds the name of the cell to a text, where CELLS names it.
func (p *Program) named(text string) string {
	if p.cell == "" {
		return text
	}
	return "cell " + p.cell + ": " + text
}

// variable is the variable that names the database.
func (p *Program) variable() string {
	if p.cell == "" {
		return "DATABASE_URL"
	}
	return "CELLS"
}

// newFront returns the API over the cells. A single one needs nothing in front.
func newFront(cells []*apiCell) http.Handler {
	if len(cells) == 1 {
		return cells[0].handler
	}
	behind := make([]httpapi.Cell, len(cells))
	for i, c := range cells {
		behind[i] = httpapi.Cell{Name: c.program.cell, Handler: c.handler, Keys: c.keys}
	}
	return httpapi.NewFront(behind)
}

// requireApart refuses two cells that are one database under two names.
func (p *Program) requireApart(ctx context.Context, pools []*pgxpool.Pool) error {
	for i, one := range pools {
		for j, other := range pools[:i] {
			err := p.await(ctx, func(ctx context.Context) error {
				same, err := horizon.Same(ctx, one, other)
				if err == nil && same {
					err = fmt.Errorf("CELLS gives the cells %s and %s the same database, by two names", p.cells[j].cell, p.cells[i].cell)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// eachCell calls check for all cells at once, so that a silent one does not use
// up the time of the others.
func eachCell[C any](cells []C, check func(C) string) []string {
	faults := make([]string, len(cells))
	var group sync.WaitGroup
	for i, c := range cells {
		group.Go(func() { faults[i] = check(c) })
	}
	group.Wait()
	return faults
}

// writeHealth answers with what is wrong with each cell, "" for nothing. A
// process that serves several cells is ready while one of them is.
func writeHealth(rw http.ResponseWriter, faults []string) {
	status, text := http.StatusServiceUnavailable, ""
	for _, fault := range faults {
		if fault == "" {
			status = http.StatusOK
		}
		text += fault
	}
	if text == "" {
		text = "ok\n"
	}
	writeText(rw, status, text)
}

// Cells returns the program of each cell, for a command that works in all of
// them one after another.
func (p *Program) Cells() []*Program { return p.inCells() }

// Cell is the name of the program's cell; "" where DATABASE_URL names the only
// one.
func (p *Program) Cell() string { return p.cell }

// OpenCells opens the migrated database of each cell, for one command of an
// operator, and checks that no two are the same. The caller closes them.
func (p *Program) OpenCells(ctx context.Context) (pools []*pgxpool.Pool, err error) {
	if p.cells == nil {
		return nil, &UsageError{"CELLS is not set: it names the databases, eu=postgres://…,us=postgres://…"}
	}
	for _, own := range p.cells {
		db, err := own.openTool(ctx, toolPool)
		if err != nil {
			closePools(pools...)
			return nil, err
		}
		pools = append(pools, db)
	}
	if err := p.requireApart(ctx, pools); err != nil {
		closePools(pools...)
		return nil, err
	}
	return pools, nil
}

// AddCell brings the database of the named cell to this program's schema, and
// proves that it is fit and none of the other cells.
func (p *Program) AddCell(ctx context.Context, name string) error {
	added := slices.IndexFunc(p.cells, func(own *Program) bool { return own.cell == name })
	if added < 0 {
		return &UsageError{fmt.Sprintf("CELLS does not name the cell %s: add it there first", name)}
	}
	if _, err := p.cells[added].migrate(ctx); err != nil {
		return p.cells[added].inCell(err)
	}
	pools, err := p.OpenCells(ctx)
	if err != nil {
		return err
	}
	defer closePools(pools...)
	return p.cells[added].inCell(requestrows.Sequences[0].Probe(ctx, pools[added]))
}

// cellReports are the reports of a pass by the cells that CELLS names.
type cellReports struct {
	Cells map[string]any `json:"cells"`
}

// Run runs the pass in all cells at once. The report has one of each cell, where
// CELLS names them. The error has those of all cells.
func (pass *Pass) Run(ctx context.Context, p *Program) (report any, err error) {
	if p.cells == nil {
		return pass.Once(ctx, p)
	}
	reports := make([]any, len(p.cells))
	errs := make([]error, len(p.cells))
	var group sync.WaitGroup
	for i, own := range p.cells {
		group.Go(func() {
			reports[i], errs[i] = pass.Once(telemetry.WithCell(ctx, own.cell), own)
			errs[i] = own.inCell(errs[i])
		})
	}
	group.Wait()
	all := cellReports{make(map[string]any, len(p.cells))}
	for i, own := range p.cells {
		all.Cells[own.cell] = reports[i]
	}
	return all, errors.Join(errs...)
}
