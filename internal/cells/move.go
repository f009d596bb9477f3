package cells

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/horizon"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/sleep"
	"github.com/holdfast/holdfast/internal/tenants"
)

// MoveConfig is how a tenant is moved. The zero value of a field is its default.
type MoveConfig struct {
	// DryRun only reports what would be copied.
	DryRun bool
	// WaitMax bounds each wait while the tenant works, for the subscriptions of
	// both cells; default 1 minute. PauseMax bounds the waits while its requests
	// are refused; default 10 s. When it is over, the tenant stays where it is.
	WaitMax, PauseMax time.Duration
	// Linger is how long the fence stays after the tenant is gone, and its
	// rows, for calls in flight that have found it in the old cell; default 45 s,
	// longer than the longest wait for an outcome.
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
	From     string    `json:"from"` // equal to To if the tenant was there already
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
	// announced is when all processes could know that the tenant will move.
	announced, paused time.Time
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
	if config.WaitMax == 0 {
		config.WaitMax = time.Minute
	}
	if config.PauseMax == 0 {
		config.PauseMax = 10 * time.Second
	}
	if config.Linger == 0 {
		config.Linger = 45 * time.Second
	}
	m := &mover{MoveConfig: config}
	err := m.find(ctx, cells, name, to)
	if err == nil {
		err = m.run(ctx)
	}
	return m.MoveReport, err
}

// run makes the steps that are not made yet. Each may be repeated.
func (m *mover) run(ctx context.Context) error {
	if m.DryRun || m.From == m.To {
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
			{"known", m.known},
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

// announce notes the move in both cells. From then on no process remembers that a
// key of the tenant is good in the old cell.
func (m *mover) announce(ctx context.Context) error {
	if _, err := m.from.Pool.Exec(ctx, `UPDATE tenant_state SET moves_to = $2 WHERE tenant_id = $1`, m.tenantID, m.to.Name); err != nil {
		return err
	}
	m.announced = time.Now() // by now a query finds that the tenant moves
	var made time.Time
	if err := m.from.Pool.QueryRow(ctx, `SELECT created_at FROM tenants WHERE tenant_id = $1`, m.tenantID).Scan(&made); err != nil {
		return err
	}
	const arriveSQL = `
WITH made AS (
    INSERT INTO tenants (tenant_id, name, created_at)
    VALUES ($1, $2, $3)
    ON CONFLICT (tenant_id) DO NOTHING
    RETURNING tenant_id
)
INSERT INTO tenant_state (tenant_id, state)
SELECT tenant_id, 'arriving'
FROM made`
	_, err := m.to.Pool.Exec(ctx, arriveSQL, m.tenantID, m.Tenant, made)
	return err
}

// known waits until every process has forgotten the keys of the tenant that it read
// before the move was announced.
func (m *mover) known(ctx context.Context) error {
	return sleep.For(ctx, time.Until(m.announced.Add(tenants.DefaultCacheFor)))
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
	return m.to.awaitSubscriptions(ctx, old, m.WaitMax)
}

func (c Cell) lastRecord(ctx context.Context) (last int64, err error) {
	err = c.Pool.QueryRow(ctx, `SELECT `+horizon.Drawn+` FROM audit_log_audit_id_seq`).Scan(&last)
	return last, err
}

// awaitSubscriptions waits until all subscriptions of the cell are past a record.
func (c Cell) awaitSubscriptions(ctx context.Context, past int64, waitMax time.Duration) error {
	deadline := time.Now().Add(waitMax)
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

// pollEvery is the pause between two queries for what a move waits for.
const pollEvery = 10 * time.Millisecond

// fewRows is how many rows may be left to copy in the pause, and roundsMax bounds
// the rounds before it.
const (
	fewRows   = 1000
	roundsMax = 5
)

// copy copies the rows in rounds, each what has changed since the one before, and
// compares them twice: at first all that was copied, and near the end what was
// deleted meanwhile, such as by a purge.
func (m *mover) copy(ctx context.Context) error {
	for round := range roundsMax {
		copied, err := m.round(ctx, "copied rows")
		m.Copied += copied
		if err == nil && round == 0 {
			err = m.repairAll(ctx)
		}
		if err == nil {
			err = m.after("round")
		}
		if err != nil {
			return err
		}
		if round > 0 && copied < fewRows {
			break
		}
	}
	if err := m.repairAll(ctx); err != nil {
		return err
	}
	copied, err := m.round(ctx, "copied rows")
	m.Copied += copied
	if err != nil {
		return err
	}
	// A subscription that is not read would only be found in the pause.
	last, err := m.from.lastRecord(ctx)
	if err != nil {
		return err
	}
	return m.from.awaitSubscriptions(ctx, last, m.WaitMax)
}
