package cells

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/sleep"
)

// switchOver is the pause: it refuses new requests, waits until nothing is under
// way, closes the fence, and makes the tenant active in the new cell.
func (m *mover) switchOver(ctx context.Context) error {
	m.paused = time.Now()
	if err := m.close(ctx); err != nil {
		return err
	}
	if err := m.after("closed"); err != nil {
		return err
	}
	last, err := m.from.lastRecord(ctx)
	if err == nil {
		err = m.from.awaitSubscriptions(ctx, last, m.PauseMax)
	}
	if err == nil {
		err = m.fitsBehind(ctx, last)
	}
	if err != nil {
		return errors.Join(err, m.reopen(ctx))
	}
	const leaveSQL = `UPDATE tenant_state SET state = 'gone', changed_at = clock_timestamp() WHERE tenant_id = $1 AND moves_to = $2 AND closed AND state IN ('moving', 'gone')`
	if err := m.change(ctx, leaveSQL); err != nil {
		return err
	}
	if err := m.after("gone"); err != nil {
		return err
	}
	if err := m.activateSoon(ctx); err != nil {
		return err
	}
	m.PauseSeconds = time.Since(m.paused).Seconds()
	return nil
}

// fitsBehind checks that the subscriptions of the new cell are past every record
// of the old one.
func (m *mover) fitsBehind(ctx context.Context, last int64) error {
	young, err := m.to.lastRecord(ctx)
	if err == nil && young <= last {
		err = errors.New("the old cell has drawn more numbers during the move than expected: try again")
	}
	if err != nil {
		return err
	}
	return m.to.awaitSubscriptions(ctx, last, m.PauseMax)
}

const moveSQL = `UPDATE tenant_state SET state = 'moving', changed_at = clock_timestamp() WHERE tenant_id = $1 AND moves_to = $2 AND state IN ('active', 'moving')`

// close refuses the tenant's requests, waits until nothing of it is under way, and
// closes the fence.
func (m *mover) close(ctx context.Context) error {
	if m.found.State == stateGone {
		return nil
	}
	if err := m.change(ctx, moveSQL); err != nil {
		return err
	}
	if err := m.after("moving"); err != nil {
		return err
	}
	deadline := m.paused.Add(m.PauseMax)
	for {
		under, err := m.underWay(ctx)
		if err == nil && !under {
			if _, err = m.from.Pool.Exec(ctx, `UPDATE tenant_state SET closed = true WHERE tenant_id = $1 AND state = 'moving'`, m.tenantID); err == nil {
				// A drain may have begun something since, such as the parts of a
				// request.
				if under, err = m.underWay(ctx); err == nil && !under {
					return nil
				}
			}
			_, opened := m.from.Pool.Exec(ctx, `UPDATE tenant_state SET closed = false WHERE tenant_id = $1 AND state = 'moving'`, m.tenantID)
			err = errors.Join(err, opened)
		}
		if err == nil && time.Now().After(deadline) {
			err = ErrBusy
		}
		if err == nil {
			err = sleep.For(ctx, pollEvery)
		}
		if err != nil {
			return errors.Join(err, m.reopen(ctx))
		}
	}
}

// change changes the tenant's state in the old cell. Error: it has another state than
// the statement asks for, because another program moves the tenant too, or GiveUp has
// ended the move.
func (m *mover) change(ctx context.Context, statement string) error {
	tag, err := m.from.Pool.Exec(ctx, statement, m.tenantID, m.to.Name)
	if err == nil && tag.RowsAffected() == 0 {
		err = errors.New("another program moves the tenant or has given its move up: run the command again when it has ended")
	}
	return err
}

// underWay reports whether something of the tenant is under way: a request that is
// not decided, a checkout that is being finished, a command.
func (m *mover) underWay(ctx context.Context) (under bool, err error) {
	for _, t := range m.all {
		if t.undone == "" || under || err != nil {
			continue
		}
		err = m.from.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM `+t.name+` WHERE tenant_id = $1 AND `+t.undone+`)`, m.tenantID).Scan(&under)
	}
	return under, err
}

// reopen lets the tenant go on in the old cell.
func (m *mover) reopen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.PauseMax)
	defer cancel()
	_, err := m.from.Pool.Exec(ctx, `UPDATE tenant_state SET state = 'active', closed = false, changed_at = clock_timestamp() WHERE tenant_id = $1 AND state = 'moving'`, m.tenantID)
	return err
}

// activateAttempts is how often the last transaction is tried: the tenant is gone
// in the old cell, and is served again only once it has committed.
const activateAttempts = 5

func (m *mover) activateSoon(ctx context.Context) (err error) {
	for range activateAttempts {
		err = m.activate(ctx)
		if errors.Is(err, errArrived) { // an attempt has committed whose answer was lost
			return nil
		}
		if err == nil || m.After != nil {
			return err
		}
		if sleep.For(ctx, pollEvery) != nil {
			return err
		}
	}
	return err
}

// activate copies what is left and makes the tenant active in the new cell, in one
// transaction there. Nothing of the tenant changes in the old cell meanwhile.
func (m *mover) activate(ctx context.Context) error {
	since, err := m.to.copiedXID(ctx, m.tenantID)
	if err != nil {
		return err
	}
	return m.from.inPlain(ctx, snapshot, func(old pgx.Tx) error {
		return m.whileArriving(ctx, "FOR UPDATE", func(young pgx.Tx) error {
			for _, t := range moved(m.all) {
				n, err := m.copyRows(ctx, old, putTx(young), &t, t.changedSQL(true), m.tenantID, since)
				m.Copied += n
				if err == nil {
					err = m.sameCount(ctx, old, young, &t)
				}
				if err != nil {
					return fmt.Errorf("copy the rest of %s: %w", t.name, err)
				}
			}
			if err := m.settle(ctx, old, young); err != nil {
				return err
			}
			if err := m.after("before active"); err != nil {
				return err
			}
			const activateSQL = `UPDATE tenant_state SET state = 'active', copied_xid = NULL, arrived_at = clock_timestamp(), changed_at = clock_timestamp() WHERE tenant_id = $1`
			_, err := young.Exec(ctx, activateSQL, m.tenantID)
			return err
		})
	})
}

// comparedMax is how many rows of a table are compared in the pause although both
// cells have equally many.
const comparedMax = 10_000

// sameCount compares a small table, and repairs a larger one if the cells do not
// have equally many rows of it.
func (m *mover) sameCount(ctx context.Context, old, young pgx.Tx, t *table) error {
	var ours, theirs int64
	if err := old.QueryRow(ctx, t.countSQL(), m.tenantID).Scan(&ours); err != nil {
		return err
	}
	if err := young.QueryRow(ctx, t.countSQL(), m.tenantID).Scan(&theirs); err != nil {
		return err
	}
	if ours == theirs && ours > comparedMax {
		return nil
	}
	return m.repair(ctx, old, young, t, true)
}

// settle makes the new cell ready for the rows: its marks are not past the
// tenant's holds, it knows what was purged, and it serves the pinned variants in
// the hot lane.
func (m *mover) settle(ctx context.Context, old, young pgx.Tx) error {
	const lowerSQL = `
UPDATE reservation_marks m
SET due_from = held.earliest, noted_xid = '18446744073709551615'
FROM (SELECT resource_kind, min(expires_at) AS earliest FROM reservations WHERE tenant_id = $1 AND status = 'held' GROUP BY 1) AS held
WHERE m.resource_kind = held.resource_kind AND m.due_from > held.earliest`
	if _, err := young.Exec(ctx, lowerSQL, m.tenantID); err != nil {
		return fmt.Errorf("move the marks back: %w", err)
	}
	var purged *time.Time
	if err := old.QueryRow(ctx, `SELECT max(purged_before) FROM purge_mark`).Scan(&purged); err != nil {
		return err
	}
	if purged != nil {
		const purgedSQL = `
INSERT INTO purge_mark (purged_before)
VALUES ($1)
ON CONFLICT (mark) DO UPDATE SET purged_before = greatest(purge_mark.purged_before, excluded.purged_before)`
		if _, err := young.Exec(ctx, purgedSQL, *purged); err != nil {
			return err
		}
	}
	rows, _ := young.Query(ctx, `SELECT variant_id FROM inventory_stocks WHERE tenant_id = $1 AND lane = 'hot'`, m.tenantID)
	pinned, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p lanes.Placement, err error) {
		p.Wish = lanes.WishHot
		return p, row.Scan(&p.VariantID)
	})
	if err != nil || len(pinned) == 0 {
		return err
	}
	return lanes.PlaceTx(ctx, young, noWaker{}, m.tenantID, pinned)
}

// noWaker wakes nothing: a tick reads every slot each second.
type noWaker struct{}

// InsertTx inserts nothing.
func (noWaker) InsertTx(context.Context, pgx.Tx, []lanes.Stream) error { return nil }
