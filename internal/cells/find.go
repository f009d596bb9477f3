package cells

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// place is the row of a tenant in a cell.
type place struct {
	TenantID uuid.UUID
	State    string
	MovesTo  *string
	Closed   bool
}

const placeSQL = `
SELECT t.tenant_id, s.state, s.moves_to, s.closed
FROM tenants t
JOIN tenant_state s ON s.tenant_id = t.tenant_id
WHERE t.name = $1`

func (c Cell) place(ctx context.Context, name string) (*place, error) {
	rows, _ := c.Pool.Query(ctx, placeSQL, name)
	p, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[place])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the tenant in the cell %s: %w", c.Name, err)
	}
	return p, nil
}

// located is the row of a tenant and the cell that has it.
type located struct {
	place
	cell Cell
}

// refused reports whether the place is where GiveUp has refused the tenant, and has
// not deleted it yet. The state of a tenant that has left a cell names another one.
func (p *place) refused() bool { return p.State == stateGone && p.MovesTo == nil }

// locate reads the rows of a tenant in all cells.
func locate(ctx context.Context, cells []Cell, name string) (places []located, err error) {
	for _, c := range cells {
		p, err := c.place(ctx, name)
		if err != nil {
			return nil, err
		}
		if p != nil {
			places = append(places, located{*p, c})
		}
	}
	return places, nil
}

// find finds where the tenant is.
func (m *mover) find(ctx context.Context, cells []Cell, name, to string) error {
	target := slices.IndexFunc(cells, func(c Cell) bool { return c.Name == to })
	if target < 0 {
		return fmt.Errorf("CELLS does not name the cell %s", to)
	}
	m.to = cells[target]
	places, err := locate(ctx, cells, name)
	if err != nil {
		return err
	}
	var there *place
	var here []place
	for _, p := range places {
		switch {
		case p.refused():
			return fmt.Errorf("the move of the tenant %s to the cell %s is being given up: finish that with `holdfast cells give-up %s`", name, p.cell.Name, name)
		case p.cell.Name == to:
			there = &p.place
		case p.State != stateArriving:
			m.from, m.found = p.cell, p.place
			here = append(here, p.place)
		}
	}
	switch {
	case len(here) == 0 && there != nil && there.State == stateActive: // the move is finished
		m.tenantID, m.found = there.TenantID, *there
		m.MoveReport = MoveReport{Tenant: name, TenantID: m.tenantID, From: to, To: to}
		return nil
	case len(here) == 0:
		return fmt.Errorf("no cell has the tenant %s: `holdfast --cell NAME tenants` lists those of a cell", name)
	case len(here) > 1:
		return fmt.Errorf("several cells have a tenant of the name %s: `holdfast cells verify` says more", name)
	case there != nil && there.TenantID != m.found.TenantID:
		return fmt.Errorf("the cell %s has another tenant of the name %s", to, name)
	case m.found.MovesTo != nil && *m.found.MovesTo != to:
		return fmt.Errorf("the tenant %s is on its way to the cell %s: finish that move first (--to %s)", name, *m.found.MovesTo, *m.found.MovesTo)
	}
	m.tenantID = m.found.TenantID
	m.MoveReport = MoveReport{Tenant: name, TenantID: m.tenantID, From: m.from.Name, To: to}
	return m.compareTables(ctx)
}

// compareTables reads the tables, which must be the same in both cells.
func (m *mover) compareTables(ctx context.Context) error {
	all, old, err := m.from.readTables(ctx)
	if err != nil {
		return err
	}
	_, young, err := m.to.readTables(ctx)
	if err != nil {
		return err
	}
	if old != young {
		return fmt.Errorf("the cells %s and %s have different schemas: run `holdfast migrate` with this CELLS", m.from.Name, m.to.Name)
	}
	m.all = all
	for _, t := range moved(all) {
		count := int64(0)
		if err := m.from.Pool.QueryRow(ctx, t.countSQL(), m.tenantID).Scan(&count); err != nil {
			return fmt.Errorf("count the rows of %s: %w", t.name, err)
		}
		m.Rows += count
	}
	return nil
}
