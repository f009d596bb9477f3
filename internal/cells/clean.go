package cells

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/sleep"
)

// keysTable has the keys of the tenant.
const keysTable = "api_keys"

// cleanBatch is how many rows one statement deletes.
const cleanBatch = 10_000

// clean deletes the tenant in the old cell. A call that has found the tenant there
// still reads the rows, as they were when it left, so they stay until no such call
// is left.
func (m *mover) clean(ctx context.Context) error {
	if err := m.linger(ctx); err != nil {
		return err
	}
	if err := m.after("lingered"); err != nil {
		return err
	}
	return m.remove(ctx, m.from)
}

// remove deletes the tenant's rows in a cell where it is not active, and then its
// fence and itself.
func (m *mover) remove(ctx context.Context, c Cell) error {
	deleted := int64(0)
	for _, t := range m.all {
		if t.name == keysTable {
			continue
		}
		for {
			tag, err := c.Pool.Exec(ctx, t.cleanSQL(), m.tenantID, cleanBatch)
			if err != nil {
				return fmt.Errorf("delete the rows of %s: %w", t.name, err)
			}
			deleted += tag.RowsAffected()
			m.progress("deleted rows", deleted)
			if tag.RowsAffected() < cleanBatch {
				break
			}
		}
	}
	if err := m.after("deleted"); err != nil {
		return err
	}
	if err := c.unfence(ctx, m.tenantID, m.all); err != nil {
		return err
	}
	// While the keys are here, their callers learn that the tenant is gone.
	return pgx.BeginFunc(ctx, c.Pool, func(tx pgx.Tx) error {
		for _, table := range []string{keysTable, "tenant_state", "tenants"} {
			if _, err := tx.Exec(ctx, `DELETE FROM `+table+` WHERE tenant_id = $1`, m.tenantID); err != nil {
				return err
			}
		}
		return nil
	})
}

// linger waits until no call is left that has found the tenant in the old cell.
func (m *mover) linger(ctx context.Context) error {
	for {
		left := 0.
		err := m.from.Pool.QueryRow(ctx, `SELECT extract(epoch FROM changed_at + $2::interval - clock_timestamp())::float8 FROM tenant_state WHERE tenant_id = $1`,
			m.tenantID, m.Linger).Scan(&left)
		if err != nil || left <= 0 {
			return err
		}
		m.progress("seconds until the rows are deleted", int64(left)+1)
		if err := sleep.For(ctx, min(time.Second, time.Duration(left*float64(time.Second)))); err != nil {
			return err
		}
	}
}
