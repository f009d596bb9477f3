package hot

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/requests"
)

// Variant is a hot variant, or one on its way in or out.
type Variant struct {
	VariantID string
	Slot      int16
	State     string // entering, hot or leaving
	Pinned    bool
	MovedAt   time.Time
}

// Listed is a hot variant as operators see it.
type Listed struct {
	Variant
	// Why says what the detector moved it for; nil for a pinned one.
	Why *string
	// Rate is how many of its requests arrived a second when the detector last looked.
	Rate float64
}

// ListMax is how many hot variants List returns at most.
const ListMax = 1000

const listSQL = `
SELECT h.variant_id, h.slot, h.state, h.pinned, h.moved_at, h.why, coalesce(w.rate, 0) AS rate
FROM hot_variants h
LEFT JOIN hot_watches w ON w.tenant_id = h.tenant_id AND w.variant_id = h.variant_id
WHERE h.tenant_id = $1
ORDER BY rate DESC, h.variant_id
LIMIT $2`

// List returns the tenant's hot variants, the busiest first.
func List(ctx context.Context, db requests.Querier, tenantID uuid.UUID) ([]Listed, error) {
	rows, err := db.Query(ctx, listSQL, tenantID, ListMax)
	if err != nil {
		return nil, fmt.Errorf("list hot variants: %w", err)
	}
	listed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Listed])
	if err != nil {
		return nil, fmt.Errorf("list hot variants: %w", err)
	}
	return listed, nil
}

const countSQL = `SELECT state, count(*) FROM hot_variants GROUP BY state`

// Count returns how many variants of all tenants are in each state: entering, hot or leaving.
func Count(ctx context.Context, db requests.Querier) (map[string]int64, error) {
	rows, err := db.Query(ctx, countSQL)
	if err != nil {
		return nil, fmt.Errorf("count hot variants: %w", err)
	}
	type count struct {
		State string
		N     int64
	}
	states, err := pgx.CollectRows(rows, pgx.RowToStructByPos[count])
	if err != nil {
		return nil, fmt.Errorf("count hot variants: %w", err)
	}
	counts := make(map[string]int64, len(states))
	for _, s := range states {
		counts[s.State] = s.N
	}
	return counts, nil
}

// Diversion says that a tenant's requests that belong to no hot variant go to a stream aside, since when and why.
type Diversion struct {
	Slot  int16
	Since time.Time
	Why   string
}

const diversionSQL = `SELECT slot, diverted_at, why FROM diverted_tenants WHERE tenant_id = $1`

// DiversionOf returns the tenant's diversion, nil if it is not diverted.
func DiversionOf(ctx context.Context, db requests.Querier, tenantID uuid.UUID) (*Diversion, error) {
	rows, err := db.Query(ctx, diversionSQL, tenantID)
	if err != nil {
		return nil, fmt.Errorf("read the diversion: %w", err)
	}
	diversion, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Diversion])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the diversion: %w", err)
	}
	return diversion, nil
}
