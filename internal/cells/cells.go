package cells

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Cell is one of the databases.
type Cell struct {
	Name string
	Pool *pgxpool.Pool
}

// Summary is what a cell has: its tenants by their states, and the size of the
// database in bytes.
type Summary struct {
	Cell     string `json:"cell"`
	Active   int64  `json:"active"`
	Arriving int64  `json:"arriving"`
	Moving   int64  `json:"moving"`
	Gone     int64  `json:"gone"`
	Bytes    int64  `json:"bytes"`
}

const summarySQL = `
SELECT count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE state = 'arriving'),
       count(*) FILTER (WHERE state = 'moving'), count(*) FILTER (WHERE state = 'gone'), pg_database_size(current_database())
FROM tenant_state`

// List returns a summary of each cell.
func List(ctx context.Context, cells []Cell) ([]Summary, error) {
	summaries := make([]Summary, len(cells))
	for i, c := range cells {
		s := Summary{Cell: c.Name}
		if err := c.Pool.QueryRow(ctx, summarySQL).Scan(&s.Active, &s.Arriving, &s.Moving, &s.Gone, &s.Bytes); err != nil {
			return nil, fmt.Errorf("read the tenants of the cell %s: %w", c.Name, err)
		}
		summaries[i] = s
	}
	return summaries, nil
}

// Fault is something that does not hold over the cells.
type Fault struct {
	Cell string `json:"cell"`
	// Check is tenant_active_once, key_once, fence_left or move_unfinished.
	Check string `json:"check"`
	// Found names the tenant, or the key by its id.
	Found string `json:"found"`
}

const tenantsSQL = `
SELECT t.tenant_id, t.name, s.state
FROM tenants t
LEFT JOIN tenant_state s ON s.tenant_id = t.tenant_id
ORDER BY t.tenant_id`

const keyHashesSQL = `
SELECT hash, key_id
FROM api_keys
ORDER BY key_id`

// fencesSQL selects the tenants that have a fence, by the triggers' names.
const fencesSQL = `
SELECT DISTINCT substr(tgname, 14, 32)::uuid
FROM pg_trigger
WHERE tgname LIKE 'tenant\_fence\_%'
ORDER BY 1`

// Verify checks what holds over the cells: a tenant is active in one of them, a
// key is in one, and neither a fence nor a move is left behind. A move that runs
// meanwhile is found as one that is left behind.
func Verify(ctx context.Context, cells []Cell) ([]Fault, error) {
	faults := []Fault{}
	activeIn := map[uuid.UUID]string{}
	keyIn := map[string]string{}
	for _, c := range cells {
		found, err := c.verify(ctx, activeIn, keyIn)
		if err != nil {
			return nil, fmt.Errorf("verify the cell %s: %w", c.Name, err)
		}
		faults = append(faults, found...)
	}
	return faults, nil
}

func (c Cell) verify(ctx context.Context, activeIn map[uuid.UUID]string, keyIn map[string]string) (faults []Fault, err error) {
	fault := func(check, format string, args ...any) {
		faults = append(faults, Fault{c.Name, check, fmt.Sprintf(format, args...)})
	}
	var tenantID, keyID uuid.UUID
	var name string
	var state *string
	rows, _ := c.Pool.Query(ctx, tenantsSQL) //nolint:rowserrcheck // ForEachRow checks it
	_, err = pgx.ForEachRow(rows, []any{&tenantID, &name, &state}, func() error {
		switch {
		case state == nil:
			fault("tenant_active_once", "tenant %s (%s) has no state", name, tenantID)
		case *state != stateActive:
			fault("move_unfinished", "tenant %s (%s) is %s: run its move again, or give it up", name, tenantID, *state)
		case activeIn[tenantID] != "":
			fault("tenant_active_once", "tenant %s (%s) is active in the cell %s too", name, tenantID, activeIn[tenantID])
		default:
			activeIn[tenantID] = c.Name
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var hash []byte
	rows, _ = c.Pool.Query(ctx, keyHashesSQL) //nolint:rowserrcheck // ForEachRow checks it
	_, err = pgx.ForEachRow(rows, []any{&hash, &keyID}, func() error {
		if other, is := keyIn[string(hash)]; is {
			fault("key_once", "the key %s is in the cell %s too", keyID, other)
		}
		keyIn[string(hash)] = c.Name
		return nil
	})
	if err != nil {
		return nil, err
	}
	rows, _ = c.Pool.Query(ctx, fencesSQL)
	fenced, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	for _, id := range slices.Compact(fenced) {
		fault("fence_left", "tenant %s has a fence", id)
	}
	return faults, err
}
