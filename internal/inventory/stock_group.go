package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// ErrUnknownGroup means that the tenant has no variant in the group, and no
// limit for it.
var ErrUnknownGroup = errors.New("unknown group")

// Group is the variants whose Sale names it: their counters added up, and how
// many units of all of them a customer may have.
type Group struct {
	TenantID uuid.UUID
	GroupID  string
	// MaxPerCustomer and CustomerPeriodSeconds are as those of a [Sale], for the
	// units of all variants together; nil: no limit.
	MaxPerCustomer        *int32
	CustomerPeriodSeconds *int32
	// Variants is how many variants are in the group. Stock, Reserved and
	// Available are the sums of theirs, without those that are digital.
	Variants, Stock, Reserved, Available int64
}

const groupLimitsSQL = `
SELECT g.tenant_id, g.group_id, g.max_per_customer, g.customer_period_seconds, 0::bigint, 0::bigint, 0::bigint, 0::bigint
FROM stock_groups g
JOIN unnest($1::uuid[], $2::text[]) AS named (tenant_id, group_id) USING (tenant_id, group_id)`

// readGroupsTx reads the limits of the groups of the requests' variants.
func (in *inputs) readGroupsTx(ctx context.Context, tx pgx.Tx, requests []HoldRequest) error {
	var tenants [][16]byte
	var names []string
	seen := make(map[groupKey]bool)
	for i := range requests {
		c := in.counters[Ref{requests[i].TenantID, requests[i].VariantID}]
		if c == nil || c.Sale == nil || c.Sale.Group == nil {
			continue
		}
		if key := (groupKey{c.TenantID, *c.Sale.Group}); !seen[key] {
			seen[key] = true
			tenants, names = append(tenants, key.tenantID), append(names, key.group)
		}
	}
	if len(names) == 0 {
		return nil
	}
	found, err := pg.Select(ctx, tx, pgx.RowToStructByPos[Group], groupLimitsSQL, tenants, names)
	if err != nil {
		return fmt.Errorf("read the limits of %d groups: %w", len(names), err)
	}
	in.groups = make(map[groupKey]Group, len(found))
	for _, g := range found {
		in.groups[groupKey{g.TenantID, g.GroupID}] = g
	}
	return nil
}

const getGroupSQL = `
SELECT $1::uuid, $2::text, g.max_per_customer, g.customer_period_seconds, sums.variants, sums.stock, sums.reserved, sums.available
FROM (
    SELECT count(*) AS variants, coalesce(sum(m.stock) FILTER (WHERE m.tracked), 0)::bigint AS stock,
           coalesce(sum(m.reserved) FILTER (WHERE m.tracked), 0)::bigint AS reserved,
           coalesce(sum(m.available) FILTER (WHERE m.tracked), 0)::bigint AS available
    FROM (` + selectStocks + `WHERE s.tenant_id = $1 AND s.sale->>'group' = $2) AS m
) AS sums
LEFT JOIN stock_groups g ON g.tenant_id = $1 AND g.group_id = $2
WHERE sums.variants > 0 OR g.group_id IS NOT NULL`

// GetGroup returns a group.
//
// Errors: [ErrUnknownGroup]; [*InvalidError] for an invalid id.
func GetGroup(ctx context.Context, db audit.Querier, tenantID uuid.UUID, groupID string) (Group, error) {
	if err := ValidateID("group", groupID); err != nil {
		return Group{}, err
	}
	g, err := pg.SelectOne(ctx, db, pgx.RowToStructByPos[Group], getGroupSQL, tenantID, groupID)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrUnknownGroup
	}
	if err != nil {
		return Group{}, fmt.Errorf("get group %s: %w", groupID, err)
	}
	return g, nil
}

// GroupPatch changes the limit of a group: a nil field stays as it is, 0 clears
// it.
type GroupPatch struct {
	MaxPerCustomer, CustomerPeriodSeconds *int32
}

const (
	// openGroupSQL makes a missing group without a limit, or locks it.
	openGroupSQL = `
INSERT INTO stock_groups AS g (tenant_id, group_id)
VALUES ($1, $2)
ON CONFLICT (tenant_id, group_id) DO UPDATE SET updated_at = clock_timestamp()
RETURNING g.max_per_customer, g.customer_period_seconds, g.created_at = g.updated_at`

	writeGroupSQL = `
UPDATE stock_groups
SET max_per_customer = $3, customer_period_seconds = $4
WHERE tenant_id = $1 AND group_id = $2`
)

// SetGroupTx sets the limit of a group, and returns the group. The group need not
// have a variant yet. A change writes one audit row (group.set).
//
// Errors: [*InvalidError]; the caller then rolls back. It locks the group's row.
// The transaction must be READ COMMITTED.
func SetGroupTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, groupID string, patch GroupPatch, origin audit.Origin) (g Group, err error) {
	ctx, done := telemetry.Verb(ctx, "inventory.set_group")
	defer func() { done(outcome(err)) }()
	if err := errors.Join(ValidateID("group", groupID), between("max_per_customer", patch.MaxPerCustomer, MaxQuantity),
		between("customer_period_seconds", patch.CustomerPeriodSeconds, CustomerPeriodMax)); err != nil {
		return Group{}, err
	}
	var before Group
	var isNew bool
	if err := tx.QueryRow(ctx, openGroupSQL, tenantID, groupID).Scan(&before.MaxPerCustomer, &before.CustomerPeriodSeconds, &isNew); err != nil {
		return Group{}, fmt.Errorf("set group %s: %w", groupID, err)
	}
	after := Group{
		MaxPerCustomer:        cleared(before.MaxPerCustomer, patch.MaxPerCustomer),
		CustomerPeriodSeconds: cleared(before.CustomerPeriodSeconds, patch.CustomerPeriodSeconds),
	}
	if after.CustomerPeriodSeconds != nil && after.MaxPerCustomer == nil {
		return Group{}, &InvalidError{Field: "customer_period_seconds", Message: "needs max_per_customer"}
	}
	entry := audit.Entry{TenantID: tenantID, TargetID: audit.TargetOf(tenantID, "group", groupID), Action: "group.set", Origin: origin, After: after.encode(groupID)}
	if !isNew {
		entry.Before = before.encode(groupID)
	}
	if isNew || string(entry.Before) != string(entry.After) {
		b := &pgx.Batch{}
		b.Queue(writeGroupSQL, tenantID, groupID, after.MaxPerCustomer, after.CustomerPeriodSeconds)
		audit.Queue(b, []audit.Entry{entry})
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return Group{}, fmt.Errorf("set group %s: %w", groupID, err)
		}
	}
	return GetGroup(ctx, tx, tenantID, groupID)
}

// encode is the limit of the group as the audit log keeps it.
func (g *Group) encode(groupID string) json.RawMessage {
	b, err := json.Marshal(struct {
		Group                 string `json:"group"`
		MaxPerCustomer        *int32 `json:"max_per_customer"`
		CustomerPeriodSeconds *int32 `json:"customer_period_seconds"`
	}{groupID, g.MaxPerCustomer, g.CustomerPeriodSeconds})
	if err != nil { // strings and numbers always marshal
		panic(err)
	}
	return b
}

// ListGroup is [List] for the variants of a group.
func ListGroup(ctx context.Context, db audit.Querier, tenantID uuid.UUID, groupID string, limit int, cursor string) (Page, error) {
	if err := ValidateID("group", groupID); err != nil {
		return Page{}, err
	}
	return list(ctx, db, limit, cursor, listGroupSQL, tenantID, groupID)
}

const listGroupSQL = selectStocks + `
WHERE s.tenant_id = $3 AND s.sale->>'group' = $4 AND s.variant_id > $1
ORDER BY s.variant_id
LIMIT $2`
