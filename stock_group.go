package holdfast

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/inventory"
)

type (
	// Group is the variants whose Sale names it, such as those of one product or
	// the locations of one variant.
	Group = inventory.Group
	// GroupPatch changes the limit of a group: a nil field stays as it is, 0
	// clears it.
	GroupPatch = inventory.GroupPatch
)

func (t *Tenant) setGroup(group string, patch GroupPatch, opts *CallOpts) *call[Group] {
	return &call[Group]{
		tenant: t, opts: opts, verb: "SetGroup", args: []any{group, patch}, repeatable: true,
		do: func(ctx context.Context, tx pgx.Tx) (g Group, _, err error) {
			g, err = inventory.SetGroupTx(ctx, tx, t.TenantID, group, patch, opts.origin())
			return g, nil, err
		},
	}
}

// SetGroup sets how many units of a group's variants a customer may have. A
// variant is in the group that its Sale names.
//
// Errors: *InvalidError, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) SetGroup(ctx context.Context, group string, patch GroupPatch, opts *CallOpts) (Group, error) {
	return t.setGroup(group, patch, opts).run(ctx)
}

// SetGroupTx is SetGroup in the caller's transaction, which must be READ
// COMMITTED. It locks the group. After an error the caller rolls back.
func (t *Tenant) SetGroupTx(ctx context.Context, tx pgx.Tx, group string, patch GroupPatch, opts *CallOpts) (Group, error) {
	return t.setGroup(group, patch, opts).inTx(ctx, tx)
}

// Group returns a group, with the sums of its variants.
//
// Errors: *InvalidError, ErrNotFound.
func (t *Tenant) Group(ctx context.Context, group string) (Group, error) {
	g, err := inventory.GetGroup(ctx, t.client.db, t.TenantID, group)
	return g, vocabulary(err)
}

// GroupStocks is Stocks for the variants of a group.
//
// Errors: *InvalidError.
func (t *Tenant) GroupStocks(ctx context.Context, group string, limit int, cursor string) (inventory.Page, error) {
	page, err := inventory.ListGroup(ctx, t.client.db, t.TenantID, group, limit, cursor)
	if err != nil {
		return page, err
	}
	page.Items, err = t.withLanes(ctx, t.client.db, page.Items)
	return page, err
}
