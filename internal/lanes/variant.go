package lanes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
)

// Variant is a hot variant, or one on its way in or out.
type Variant struct {
	VariantID string
	Slot      int16
	State     string // entering, hot or leaving
	Pinned    bool
	MovedAt   time.Time
}

// TakesNew reports whether requests for the variant that are sent now go to the
// hot lane; false for the zero Variant.
func (v Variant) TakesNew() bool { return v.VariantID != "" && v.State != "leaving" }

// Lane returns the lane of requests for the variant that are sent now.
func (v Variant) Lane() Lane {
	if v.TakesNew() {
		return Hot
	}
	return Normal
}

const lookupSQL = `
SELECT variant_id, slot, state, pinned, moved_at
FROM hot_variants
WHERE tenant_id = $1 AND variant_id = ANY ($2::text[])`

// Lookup returns, by their ids, those of the variants that are hot, entering or
// leaving.
func Lookup(ctx context.Context, db audit.Querier, tenantID uuid.UUID, variantIDs []string) (map[string]Variant, error) {
	rows, _ := db.Query(ctx, lookupSQL, tenantID, variantIDs)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Variant])
	if err != nil {
		return nil, fmt.Errorf("look up %d variants among the hot ones: %w", len(variantIDs), err)
	}
	found := make(map[string]Variant, len(list))
	for _, v := range list {
		found[v.VariantID] = v
	}
	return found, nil
}

const countVariantsSQL = `SELECT state, count(*) FROM hot_variants GROUP BY state`

// CountVariants returns how many variants of all tenants are in each state:
// entering, hot or leaving.
func CountVariants(ctx context.Context, db audit.Querier) (map[string]int64, error) {
	rows, err := db.Query(ctx, countVariantsSQL)
	if err != nil {
		return nil, fmt.Errorf("count hot variants: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		State string
		Count int64
	}])
	if err != nil {
		return nil, fmt.Errorf("count hot variants: %w", err)
	}
	counts := make(map[string]int64, len(found))
	for _, f := range found {
		counts[f.State] = f.Count
	}
	return counts, nil
}

// Diversion is the move of a tenant's requests for variants that are not hot to
// a separate stream: since when and why.
type Diversion struct {
	Slot  int16
	Since time.Time
	Why   string
}

const diversionSQL = `SELECT slot, diverted_at, why FROM diverted_tenants WHERE tenant_id = $1`

// DiversionOf returns the tenant's diversion, nil if it is not diverted.
func DiversionOf(ctx context.Context, db audit.Querier, tenantID uuid.UUID) (*Diversion, error) {
	rows, _ := db.Query(ctx, diversionSQL, tenantID)
	diversion, err := pgx.CollectExactlyOneRow(rows, pgx.RowToAddrOfStructByPos[Diversion])
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the diversion: %w", err)
	}
	return diversion, nil
}

// RouteJoin and RouteColumns are parts of a SQL statement that inserts
// requests: they choose the stream of a row a with tenant_id and variant_id.
// RouteColumns are two expressions, the stream's lane and slot. The subquery on
// one tenant runs only if some tenant is diverted.
//
// The transaction must be READ COMMITTED: an older snapshot routes by a rule
// that no lane follows any more.
const (
	RouteJoin = `LEFT JOIN hot_variants h ON h.tenant_id = a.tenant_id AND h.variant_id = a.variant_id AND h.state <> 'leaving'`

	RouteColumns = `CASE WHEN h.slot IS NULL THEN 'normal' ELSE 'hot' END,
       coalesce(h.slot, CASE WHEN EXISTS (SELECT FROM diverted_tenants)
                             THEN (SELECT d.slot FROM diverted_tenants d WHERE d.tenant_id = a.tenant_id) END, 0)`
)

// LeavingSlot is a SQL expression for the statement of RouteJoin to return: the
// hot slot whose drain decides the request r, which was routed to another lane
// because its variant is leaving the hot lane; else NULL.
// While no variant is leaving, the rows look nothing up.
const LeavingSlot = `CASE WHEN r.lane <> 'hot' AND EXISTS (SELECT FROM hot_variants WHERE state = 'leaving')
     THEN (SELECT h.slot FROM hot_variants h WHERE h.tenant_id = r.tenant_id AND h.variant_id = r.variant_id) END`
