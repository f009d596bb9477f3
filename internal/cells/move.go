package cells

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
)

// MoveConfig is how a tenant is moved. The zero value of a field is its default.
type MoveConfig struct {
	// DryRun only reports what would be copied.
	DryRun bool
	// Patience bounds each wait while the tenant works: for the subscriptions of
	// the new cell; default 1 minute. PauseMax bounds the waits while its requests
	// are refused; default 10 s. When it is over, the tenant stays where it is.
	Patience, PauseMax time.Duration
	// Linger is how long the fence stays after the tenant is gone, for calls in
	// flight that have found it in the old cell; default 15 s.
	Linger time.Duration
	// Progress is called with what the move does, and how much of it is done.
	Progress func(step string, done int64)
	// After is called after each step, for tests. An error ends the move there.
	After func(step string) error
}

// MoveReport is what a move did, or would do.
type MoveReport struct {
	Tenant   string    `json:"tenant"`
	TenantID uuid.UUID `json:"tenant_id"`
	From     string    `json:"from"`
	To       string    `json:"to"`
	// Rows is how many rows the tenant has, and Copied how many were copied while
	// it worked, some of them more than once.
	Rows   int64 `json:"rows"`
	Copied int64 `json:"copied"`
	// PauseSeconds is for how long requests of the tenant were refused.
	PauseSeconds float64 `json:"pause_seconds"`
}

// mover moves one tenant.
type mover struct {
	MoveConfig
	MoveReport
	from, to Cell
	tenantID uuid.UUID
	all      []table
	found    place // in from
	paused   time.Time
}

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

// ErrBusy means that the tenant had requests or checkouts under way for the whole
// of PauseMax. It stays where it is, and the move can be tried again.
var ErrBusy = errors.New("the tenant has requests or checkouts that did not end within the longest pause; it stays where it is: try again")

// Move moves the tenant of that name to the cell to, while it works. If it was
// interrupted, the same call finishes it. One move of a tenant runs at a time.
//
// Errors: ErrBusy, a tenant or a cell that does not exist, a move to another cell
// that is not finished, cells of different schemas, a subscription that is not
// read.
func Move(ctx context.Context, cells []Cell, name, to string, config MoveConfig) (MoveReport, error) {
	if config.Patience == 0 {
		config.Patience = time.Minute
	}
	if config.PauseMax == 0 {
		config.PauseMax = 10 * time.Second
	}
	if config.Linger == 0 {
		config.Linger = 15 * time.Second
	}
	m := &mover{MoveConfig: config}
	err := m.find(ctx, cells, name, to)
	if err == nil {
		err = m.run(ctx)
	}
	return m.MoveReport, err
}

// find finds where the tenant is.
func (m *mover) find(ctx context.Context, cells []Cell, name, to string) error {
	target := slices.IndexFunc(cells, func(c Cell) bool { return c.Name == to })
	if target < 0 {
		return fmt.Errorf("CELLS does not name the cell %s", to)
	}
	m.to = cells[target]
	var there *place
	var here []place
	for _, c := range cells {
		p, err := c.place(ctx, name)
		switch {
		case err != nil:
			return err
		case p == nil:
		case c.Name == to:
			there = p
		case p.State != stateArriving:
			m.from, m.found = c, *p
			here = append(here, *p)
		}
	}
	switch {
	case len(here) == 0 && there != nil && there.State == stateActive:
		return fmt.Errorf("the tenant %s is in the cell %s already", name, to)
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

// run makes the steps that are not made yet. Each may be repeated.
func (m *mover) run(ctx context.Context) error {
	if m.DryRun {
		return nil
	}
	arrived, err := m.to.isActive(ctx, m.tenantID)
	if err != nil {
		return err
	}
	if !arrived {
		for _, step := range []struct {
			name string
			do   func(context.Context) error
		}{
			{"announced", m.announce},
			{"sequences raised", m.raise},
			{"copied", m.copy},
			{"fenced", func(ctx context.Context) error { return m.from.fence(ctx, m.tenantID, m.all) }},
			{"switched", m.switchOver},
		} {
			if err := m.step(ctx, step.name, step.do); err != nil {
				return err
			}
		}
	}
	return m.step(ctx, "cleaned", m.clean)
}

func (m *mover) step(ctx context.Context, name string, do func(context.Context) error) error {
	if err := do(ctx); err != nil {
		return fmt.Errorf("move %s from %s to %s: %w", m.Tenant, m.from.Name, m.to.Name, err)
	}
	return m.after(name)
}

func (m *mover) after(step string) error {
	if m.After == nil {
		return nil
	}
	return m.After(step)
}

func (m *mover) progress(step string, done int64) {
	if m.Progress != nil {
		m.Progress(step, done)
	}
}

func (c Cell) isActive(ctx context.Context, tenantID uuid.UUID) (active bool, err error) {
	err = c.Pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM tenant_state WHERE tenant_id = $1 AND state = 'active')`, tenantID).Scan(&active)
	return active, err
}

// announce notes the move in both cells.
func (m *mover) announce(ctx context.Context) error {
	if _, err := m.from.Pool.Exec(ctx, `UPDATE tenant_state SET moves_to = $2 WHERE tenant_id = $1`, m.tenantID, m.to.Name); err != nil {
		return err
	}
	const arriveSQL = `
WITH made AS (
    INSERT INTO tenants (tenant_id, name)
    VALUES ($1, $2)
    ON CONFLICT (tenant_id) DO NOTHING
    RETURNING tenant_id
)
INSERT INTO tenant_state (tenant_id, state)
SELECT tenant_id, 'arriving'
FROM made`
	_, err := m.to.Pool.Exec(ctx, arriveSQL, m.tenantID, m.Tenant)
	return err
}

// margin is how far beyond the old cell the sequences of the new one are raised,
// more than the old one draws during a move.
const margin = 10_000_000

// raise raises the sequences of the new cell past those of the old one, and waits
// until its subscriptions are past the gap: so they deliver no copied record, and
// what the tenant does later has higher numbers.
func (m *mover) raise(ctx context.Context) error {
	for _, numbers := range requestrows.Sequences {
		var old, young int64
		drawn := `SELECT ` + horizon.Drawn + ` FROM ` + numbers.Sequence
		if err := m.from.Pool.QueryRow(ctx, drawn).Scan(&old); err != nil {
			return err
		}
		if err := m.to.Pool.QueryRow(ctx, drawn).Scan(&young); err != nil {
			return err
		}
		if young > old+margin/2 {
			continue
		}
		if _, err := m.to.Pool.Exec(ctx, `SELECT setval($1::text::regclass, $2)`, numbers.Sequence, max(old, young)+margin); err != nil {
			return err
		}
	}
	old, err := m.from.lastRecord(ctx)
	if err != nil {
		return err
	}
	return m.to.awaitSubscriptions(ctx, old, m.Patience)
}

func (c Cell) lastRecord(ctx context.Context) (last int64, err error) {
	err = c.Pool.QueryRow(ctx, `SELECT `+horizon.Drawn+` FROM audit_log_audit_id_seq`).Scan(&last)
	return last, err
}

// awaitSubscriptions waits until all subscriptions of the cell are past a record.
func (c Cell) awaitSubscriptions(ctx context.Context, past int64, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for {
		rows, _ := c.Pool.Query(ctx, `SELECT name FROM audit_subscriptions WHERE position < $1 ORDER BY name`, past)
		behind, err := pgx.CollectRows(rows, pgx.RowTo[string])
		switch {
		case err != nil:
			return err
		case len(behind) == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("the subscription %s of the cell %s is behind: its reader must run, or the subscription be removed", behind[0], c.Name)
		}
		if err := sleep.For(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// pollEvery is the pause between two looks at what a move waits for.
const pollEvery = 10 * time.Millisecond

// fewRows is how many rows may be left to copy in the pause, and roundsMax bounds
// the rounds before it.
const (
	fewRows   = 1000
	roundsMax = 5
)

// copy copies what cannot change any more, or is copied again if it does, and
// compares it.
func (m *mover) copy(ctx context.Context) error {
	for round := range roundsMax {
		copied, err := m.round(ctx, "copied rows")
		m.Copied += copied
		if err != nil {
			return err
		}
		if round == 0 {
			if err := m.repairAll(ctx); err != nil {
				return err
			}
		} else if copied < fewRows {
			return nil
		}
		if err := m.after("round"); err != nil {
			return err
		}
	}
	return nil
}

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
	if _, err := m.from.Pool.Exec(ctx, `UPDATE tenant_state SET state = 'gone', changed_at = clock_timestamp() WHERE tenant_id = $1`, m.tenantID); err != nil {
		return err
	}
	if err := m.after("gone"); err != nil {
		return err
	}
	if err := m.activate(ctx); err != nil {
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

// close refuses the tenant's requests, waits until nothing of it is under way, and
// closes the fence.
func (m *mover) close(ctx context.Context) error {
	if m.found.State == stateGone {
		return nil
	}
	const moveSQL = `UPDATE tenant_state SET state = 'moving', changed_at = clock_timestamp() WHERE tenant_id = $1`
	if _, err := m.from.Pool.Exec(ctx, moveSQL, m.tenantID); err != nil {
		return err
	}
	if err := m.after("moving"); err != nil {
		return err
	}
	deadline := m.paused.Add(m.PauseMax)
	for {
		under, err := m.underWay(ctx)
		if err == nil && !under {
			if _, err = m.from.Pool.Exec(ctx, `UPDATE tenant_state SET closed = true WHERE tenant_id = $1`, m.tenantID); err == nil {
				// A drain may have begun something since, such as the parts of a
				// request.
				if under, err = m.underWay(ctx); err == nil && !under {
					return nil
				}
			}
			_, opened := m.from.Pool.Exec(ctx, `UPDATE tenant_state SET closed = false WHERE tenant_id = $1`, m.tenantID)
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

// underWaySQL: a request that is not decided, or a checkout whose finishing has
// begun, or whose payment service is being asked.
const underWaySQL = `
SELECT EXISTS (SELECT 1 FROM reservation_requests WHERE tenant_id = $1 AND status IN ('queued', 'processing'))
    OR EXISTS (SELECT 1 FROM checkouts WHERE tenant_id = $1 AND ended_at IS NULL AND status = 'finalizing')`

func (m *mover) underWay(ctx context.Context) (under bool, err error) {
	err = m.from.Pool.QueryRow(ctx, underWaySQL, m.tenantID).Scan(&under)
	return under, err
}

// reopen lets the tenant go on in the old cell.
func (m *mover) reopen(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.PauseMax)
	defer cancel()
	_, err := m.from.Pool.Exec(ctx, `UPDATE tenant_state SET state = 'active', closed = false, changed_at = clock_timestamp() WHERE tenant_id = $1 AND state = 'moving'`, m.tenantID)
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
		return m.to.inPlain(ctx, pgx.TxOptions{}, func(young pgx.Tx) error {
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

// sameCount repairs a table if the cells do not have equally many rows of it.
func (m *mover) sameCount(ctx context.Context, old, young pgx.Tx, t *table) error {
	var ours, theirs int64
	if err := old.QueryRow(ctx, t.countSQL(), m.tenantID).Scan(&ours); err != nil {
		return err
	}
	if err := young.QueryRow(ctx, t.countSQL(), m.tenantID).Scan(&theirs); err != nil {
		return err
	}
	if ours == theirs {
		return nil
	}
	_, err := m.repair(ctx, old, young, t, true)
	return err
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

// noWaker wakes nothing: a tick looks at every slot each second.
type noWaker struct{}

// InsertTx inserts nothing.
func (noWaker) InsertTx(context.Context, pgx.Tx, []lanes.Stream) error { return nil }

// keysTable has the keys of the tenant.
const keysTable = "api_keys"

// cleanBatch is how many rows one statement deletes.
const cleanBatch = 10_000

// clean deletes the tenant's rows in the old cell, and then its fence and itself.
func (m *mover) clean(ctx context.Context) error {
	deleted := int64(0)
	for _, t := range m.all {
		if t.name == keysTable {
			continue
		}
		for {
			tag, err := m.from.Pool.Exec(ctx, t.cleanSQL(), m.tenantID, cleanBatch)
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
	if err := m.linger(ctx); err != nil {
		return err
	}
	if err := m.from.unfence(ctx, m.tenantID, m.all); err != nil {
		return err
	}
	// While the keys are here, their callers learn that the tenant is gone.
	return pgx.BeginFunc(ctx, m.from.Pool, func(tx pgx.Tx) error {
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
		m.progress("seconds until the fence is removed", int64(left)+1)
		if err := sleep.For(ctx, min(time.Second, time.Duration(left*float64(time.Second)))); err != nil {
			return err
		}
	}
}
