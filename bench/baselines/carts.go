package baselines

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Carts has a shop's other verbs, for every baseline: each is a plain
// transaction of three or four statements. The cart's holds are locked first
// and the stock's row last, because other callers wait for it.
type Carts struct {
	DB *pgxpool.Pool
	// TTL is how long a changed hold lasts; 0 is Holdfast's default.
	TTL time.Duration
}

// Hold is a hold of a cart.
type Hold struct {
	HoldID    uuid.UUID
	VariantID string
	Quantity  int64
	HeldAt    time.Time
	ExpiresAt time.Time
	Due       bool
}

var (
	// ErrCartEmpty means that the cart holds nothing; nothing was written.
	ErrCartEmpty = errors.New("baselines: the cart holds nothing")
	// ErrHoldExpired means that a hold of the cart is past its deadline;
	// nothing was written.
	ErrHoldExpired = errors.New("baselines: a hold of the cart has expired")

	errOneHold = errors.New("baselines: a change of quantity is written for carts with one hold of the variant")
)

const (
	holdColumns = `hold_id, variant_id, quantity, held_at, expires_at, expires_at <= now() AS due`
	cartCommit  = `
UPDATE baseline.holds
SET status = 'committed'
WHERE tenant_id = $1 AND cart_id = $2 AND status = 'held'
RETURNING ` + holdColumns
	itemRelease = `
UPDATE baseline.holds
SET status = 'released'
WHERE tenant_id = $1 AND cart_id = $2 AND variant_id = $3 AND status = 'held' AND expires_at > now()
RETURNING ` + holdColumns
	itemLock = `
SELECT ` + holdColumns + `
FROM baseline.holds
WHERE tenant_id = $1 AND cart_id = $2 AND variant_id = $3 AND status = 'held' AND expires_at > now()
FOR UPDATE`
	holdChange = `
UPDATE baseline.holds
SET quantity = $3, expires_at = now() + $4::interval
WHERE tenant_id = $1 AND hold_id = $2`
	endsAudit = `
INSERT INTO baseline.audit (tenant_id, hold_id, action, after)
SELECT $1::uuid, e.hold_id, $3::text, $4::jsonb
FROM unnest($2::uuid[]) AS e (hold_id)`
	stockSell = `
UPDATE baseline.stocks
SET stock = stock - $3, reserved = reserved - $3
WHERE tenant_id = $1 AND variant_id = $2`
)

// The actions of audit rows.
const (
	actionCommitted = "hold.committed"
	actionReleased  = "hold.released"
	actionChanged   = "hold.changed"
)

// Checkout commits everything that the cart holds, all or nothing, and returns
// it. Errors: ErrHoldExpired, ErrCartEmpty.
func (c *Carts) Checkout(ctx context.Context, tenantID uuid.UUID, cartID string) (committed []Hold, err error) {
	err = pgx.BeginFunc(ctx, c.DB, func(tx pgx.Tx) error {
		committed, err = holdsOf(tx.Query(ctx, cartCommit, tenantID, cartID))
		switch {
		case err != nil:
			return err
		case len(committed) == 0:
			return ErrCartEmpty
		case slices.ContainsFunc(committed, func(h Hold) bool { return h.Due }):
			return ErrHoldExpired
		}
		return settleTx(ctx, tx, tenantID, committed, actionCommitted, stockSell)
	})
	return committed, err
}

// Remove releases what the cart holds of the variant, and returns it. Holds
// past their deadline are left to expire. A cart that holds nothing is not an
// error.
func (c *Carts) Remove(ctx context.Context, tenantID uuid.UUID, cartID, variantID string) (released []Hold, err error) {
	err = pgx.BeginFunc(ctx, c.DB, func(tx pgx.Tx) error {
		released, err = holdsOf(tx.Query(ctx, itemRelease, tenantID, cartID, variantID))
		if err != nil || len(released) == 0 {
			return err
		}
		return settleTx(ctx, tx, tenantID, released, actionReleased, stockReturn)
	})
	return released, err
}

// Change sets the quantity of the variant that the request's cart holds, and
// renews the deadline. A cart that holds none gets a new hold. Errors:
// ErrSoldOut.
func (c *Carts) Change(ctx context.Context, r Request) error {
	return pgx.BeginFunc(ctx, c.DB, func(tx pgx.Tx) error {
		held, err := holdsOf(tx.Query(ctx, itemLock, r.TenantID, r.CartID, r.VariantID))
		switch {
		case err != nil:
			return err
		case len(held) == 0:
			return HoldTx(ctx, tx, r)
		case len(held) > 1:
			return errOneHold
		}
		id := held[0].HoldID
		if _, err := tx.Exec(ctx, holdChange, r.TenantID, id, r.Quantity, r.lasts()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, endsAudit, r.TenantID, []uuid.UUID{id}, actionChanged, r.after()); err != nil {
			return err
		}
		return guardTx(ctx, tx, r, r.Quantity-held[0].Quantity)
	})
}

func holdsOf(rows pgx.Rows, err error) ([]Hold, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[Hold])
}

// settleTx writes the audit rows of holds that have ended, and then updates the
// counters in the order of the variants, so that carts cannot deadlock.
func settleTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, ended []Hold, action, stockSQL string) error {
	ids := make([]uuid.UUID, len(ended))
	units := make(map[string]int64)
	for i := range ended {
		ids[i] = ended[i].HoldID
		units[ended[i].VariantID] += ended[i].Quantity
	}
	after := json.RawMessage(`{"action":"` + action + `"}`)
	if _, err := tx.Exec(ctx, endsAudit, tenantID, ids, action, after); err != nil {
		return err
	}
	for _, variant := range slices.Sorted(maps.Keys(units)) {
		if _, err := tx.Exec(ctx, stockSQL, tenantID, variant, units[variant]); err != nil {
			return err
		}
	}
	return nil
}
