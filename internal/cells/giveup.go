package cells

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// GiveUp ends a move that is not finished. The tenant goes on in the cell in which
// it is, and what was copied is deleted in the other one, unless cells lacks that
// one. It may be repeated, and should be when a program that still moved the tenant
// has ended, which it does with an error. The report is of the tenant and the two
// cells; To is From if there was no move.
//
// Errors: a tenant that does not exist, or has arrived; a tenant that has left for a
// cell that cells lacks, because only that cell has recorded whether it has arrived.
func GiveUp(ctx context.Context, cells []Cell, name string) (MoveReport, error) {
	return giveUp(ctx, cells, name, nil)
}

// giveUp is GiveUp. after is called after each of its steps, for tests.
func giveUp(ctx context.Context, cells []Cell, name string, after func(step string) error) (MoveReport, error) {
	m := &mover{MoveConfig: MoveConfig{After: after}}
	reached, err := m.findMove(ctx, cells, name)
	if err != nil {
		return m.MoveReport, err
	}
	const reopenSQL = `UPDATE tenant_state SET state = 'active', closed = false, moves_to = NULL, changed_at = clock_timestamp() WHERE tenant_id = $1 AND state = ANY ($2)`
	left := []string{stateActive, stateMoving}
	if reached {
		err := m.refuse(ctx)
		if err == nil {
			err = m.after("refused")
		}
		if err != nil {
			return m.MoveReport, err
		}
		left = append(left, stateGone) // it cannot arrive any more
	}
	tag, err := m.from.Pool.Exec(ctx, reopenSQL, m.tenantID, left)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("the tenant %s has left for the cell %s: name it in CELLS, because only that cell has recorded whether it has arrived", name, m.To)
	}
	if err == nil {
		err = m.after("reopened")
	}
	if err == nil {
		err = m.from.unfence(ctx, m.tenantID, m.all)
	}
	if err == nil && reached {
		err = m.remove(ctx, m.to)
	}
	return m.MoveReport, err
}

// findMove finds the move of a tenant that is not finished, and whether cells has
// the cell that the tenant moves to.
func (m *mover) findMove(ctx context.Context, cells []Cell, name string) (reached bool, err error) {
	places, err := locate(ctx, cells, name)
	if err != nil {
		return false, err
	}
	m.Tenant = name
	for _, p := range places {
		if p.State == stateArriving || p.refused() {
			m.To = p.cell.Name
			continue
		}
		if m.from.Name != "" {
			return false, fmt.Errorf("the tenant %s is in the cell %s and in %s: finish its move, then move it back", name, m.from.Name, p.cell.Name)
		}
		m.from, m.found = p.cell, p.place
		if p.MovesTo != nil {
			m.To = *p.MovesTo
		}
	}
	switch {
	case m.from.Name == "":
		return false, fmt.Errorf("no cell has the tenant %s", name)
	case m.found.State == stateActive && m.To == "":
		m.To = m.from.Name
	}
	m.From, m.TenantID, m.tenantID = m.from.Name, m.found.TenantID, m.found.TenantID
	if target := slices.IndexFunc(cells, func(c Cell) bool { return c.Name == m.To }); target >= 0 && m.To != m.From {
		m.to, reached = cells[target], true
	}
	m.all, _, err = m.from.readTables(ctx)
	return reached, err
}

// refuse makes sure that the tenant cannot become active in the new cell any more.
func (m *mover) refuse(ctx context.Context) error {
	if _, err := m.to.Pool.Exec(ctx, `UPDATE tenant_state SET state = 'gone', changed_at = clock_timestamp() WHERE tenant_id = $1 AND state = 'arriving'`, m.tenantID); err != nil {
		return err
	}
	arrived, err := m.to.isActive(ctx, m.tenantID) // the update has waited for a transaction that makes it active
	if err == nil && arrived {
		err = errors.New("the tenant has arrived: finish its move, then move it back")
	}
	return err
}
