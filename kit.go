package holdfast

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/carts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// Kit is a list of parts, units of variants, that is sold as one. It has no
// stock of its own: Available is how many whole kits a new request can hold.
type Kit = inventory.Kit

func (t *Tenant) setKit(kit string, parts []requests.KitPart, opts *CallOpts) *call[Kit] {
	return &call[Kit]{
		tenant: t, opts: opts, verb: "SetKit", args: []any{kit, parts}, repeatable: true,
		do: func(ctx context.Context, tx pgx.Tx) (k Kit, _, err error) {
			k, err = inventory.SetKitTx(ctx, tx, t.TenantID, kit, parts, opts.origin())
			return k, nil, err
		},
	}
}

// SetKit creates a kit or replaces its parts: 1 to 20 different variants, counted
// or digital. Requests that were accepted before keep the parts that they have.
// AddLines requests kits.
//
// Errors: *InvalidError, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) SetKit(ctx context.Context, kit string, parts []requests.KitPart, opts *CallOpts) (Kit, error) {
	return t.setKit(kit, parts, opts).run(ctx)
}

// SetKitTx is SetKit in the caller's transaction, which must be READ COMMITTED.
// It locks the kit.
func (t *Tenant) SetKitTx(ctx context.Context, tx pgx.Tx, kit string, parts []requests.KitPart, opts *CallOpts) (Kit, error) {
	return t.setKit(kit, parts, opts).inTx(ctx, tx)
}

// Kit returns a kit.
//
// Errors: *InvalidError, ErrNotFound.
func (t *Tenant) Kit(ctx context.Context, kit string) (Kit, error) {
	k, err := inventory.GetKit(ctx, t.client.db, t.TenantID, kit)
	return k, vocabulary(err)
}

// Kits returns a page of the tenant's kits in the order of their ids: limit of
// them, or 100 if it is 0, after the cursor of an earlier page.
//
// Errors: *InvalidError.
func (t *Tenant) Kits(ctx context.Context, limit int, cursor string) (inventory.KitPage, error) {
	return inventory.ListKits(ctx, t.client.db, t.TenantID, limit, cursor)
}

func (t *Tenant) deleteKit(kit string, opts *CallOpts) *call[struct{}] {
	return &call[struct{}]{
		tenant: t, opts: opts, verb: "DeleteKit", args: []any{kit},
		do: func(ctx context.Context, tx pgx.Tx) (none struct{}, _, err error) {
			return none, nil, inventory.DeleteKitTx(ctx, tx, t.TenantID, kit, opts.origin())
		},
	}
}

// DeleteKit deletes a kit. What carts hold of it stays held.
//
// Errors: ErrNotFound, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) DeleteKit(ctx context.Context, kit string, opts *CallOpts) error {
	_, err := t.deleteKit(kit, opts).run(ctx)
	return err
}

// DeleteKitTx is DeleteKit in the caller's transaction. It locks the kit.
func (t *Tenant) DeleteKitTx(ctx context.Context, tx pgx.Tx, kit string, opts *CallOpts) error {
	_, err := t.deleteKit(kit, opts).inTx(ctx, tx)
	return err
}

func (t *Tenant) removeKit(cart, kit string, reason ReleaseReason, opts *CallOpts) *call[requests.Removed] {
	v := inventory.Call{Action: inventory.ReleaseCart, CartID: cart, KitID: kit, Reason: cmp.Or(reason, reservations.CartRemoved)}
	return holdCall(t, opts, "RemoveKit", v, func(a carts.Applied) requests.Removed {
		return requests.Removed{Released: a.Reservations, Cancelled: a.Cancelled}
	})
}

// RemoveKit takes all kits of that id out of a cart, as Remove takes a variant:
// all their parts are released, and undecided requests for the kit fail with
// reason cancelled. It is no error if the cart has none.
//
// Errors: *InvalidError, ErrCheckoutInProgress, ErrKeyReused, ErrOutcomeUnknown.
func (t *Tenant) RemoveKit(ctx context.Context, cart, kit string, reason ReleaseReason, opts *CallOpts) (requests.Removed, error) {
	if err := inventory.ValidateID("kit_id", kit); err != nil {
		return requests.Removed{}, err
	}
	removed, err := t.removeKit(cart, kit, reason, opts).run(ctx)
	if err == nil {
		t.notifyCancelled(ctx, removed.Cancelled)
	}
	return removed, err
}

// RemoveKitTx is RemoveKit in the caller's transaction, which must be READ
// COMMITTED. It locks requests, then stocks, then reservations.
func (t *Tenant) RemoveKitTx(ctx context.Context, tx pgx.Tx, cart, kit string, reason ReleaseReason, opts *CallOpts) (requests.Removed, error) {
	if err := inventory.ValidateID("kit_id", kit); err != nil {
		return requests.Removed{}, err
	}
	return t.removeKit(cart, kit, reason, opts).inTx(ctx, tx)
}
