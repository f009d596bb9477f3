package checkouts

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/invalid"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
)

// The bounds of what a caller gives, in characters.
const (
	ReferenceMax   = 200
	CallbackURLMax = 2000
)

// Start is a checkout to begin.
type Start struct {
	TenantID uuid.UUID
	// CheckoutID is made if it is zero. A Begin that is repeated with the id of
	// an existing checkout returns that one, and begins nothing.
	CheckoutID uuid.UUID
	CartID     string
	// PaymentReference is the shop's name of the payment: 1 to ReferenceMax
	// characters.
	PaymentReference string
	// CallbackURL is passed to the Validator, up to CallbackURLMax characters. It
	// may be any text that a Validator understands. If it is empty, the payment
	// is answered with Answer only.
	CallbackURL string
	// IdempotencyKey is the key that the transaction of BeginTx has claimed for
	// the call with tenants.ClaimKeyTx, if any. It is kept while the checkout's
	// record is.
	IdempotencyKey string
	Origin         audit.Origin
}

// Begin locks everything a cart holds to a new checkout, and records it. The
// holds last until the checkout's deadline plus Margin.
//
// Errors, in order of precedence: *inventory.InvalidError; ErrIDReused;
// ErrRequestsPending; ErrCheckoutInProgress if the cart has an unfinished
// checkout; ErrHoldExpired; ErrCartEmpty.
func Begin(ctx context.Context, db *pgxpool.Pool, start Start, config Config) (c Checkout, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		c, err = BeginTx(ctx, tx, start, config)
		return err
	})
	return c, err
}

// BeginTx is Begin in the caller's transaction, which must be rolled back after
// an error. It locks the stocks of the cart's variants in order, then its
// reservations.
//
// The transaction must be READ COMMITTED, else inventory.ErrIsolation: an older
// snapshot would miss requests and holds that were added to the cart since.
func BeginTx(ctx context.Context, tx pgx.Tx, start Start, config Config) (Checkout, error) {
	config, err := config.withDefaults()
	if err != nil {
		return Checkout{}, err
	}
	if err := start.validate(); err != nil {
		return Checkout{}, err
	}
	if start.CheckoutID == uuid.Nil {
		start.CheckoutID, err = uuid.NewV7()
		if err != nil {
			return Checkout{}, err
		}
	}
	existing, err := start.findTx(ctx, tx)
	if err != nil || existing != nil {
		return start.same(existing, err)
	}
	cart, err := inventory.LockCartTx(ctx, tx, start.TenantID, start.CartID, start.CheckoutID, config.TTL+Margin, start.Origin)
	if errors.Is(err, ErrCheckoutInProgress) { // perhaps another call of this Begin came first
		if existing, missing := Get(ctx, tx, start.TenantID, start.CheckoutID); missing == nil {
			return start.same(&existing, nil)
		}
	}
	if err != nil {
		return Checkout{}, fmt.Errorf("begin the checkout of cart %s: %w", start.CartID, err)
	}
	return start.insertTx(ctx, tx, &cart, config.TTL)
}

func (s *Start) validate() error {
	if err := inventory.ValidateID("cart_id", s.CartID); err != nil {
		return err
	}
	if err := invalid.Check("payment_reference", s.PaymentReference, ReferenceMax); err != nil {
		return err
	}
	if s.CallbackURL == "" {
		return nil
	}
	return invalid.Check("callback_url", s.CallbackURL, CallbackURLMax)
}

// same returns the existing checkout if it is the one to begin.
func (s *Start) same(existing *Checkout, err error) (Checkout, error) {
	switch {
	case err != nil:
		return Checkout{}, err
	case existing.CartID != s.CartID || existing.PaymentReference != s.PaymentReference || existing.CallbackURL != s.CallbackURL:
		return Checkout{}, ErrIDReused
	}
	return *existing, nil
}

// findTx returns the checkout of the given id, nil if there is no
// such checkout. Errors: ErrRequestsPending.
func (s *Start) findTx(ctx context.Context, tx pgx.Tx) (*Checkout, error) {
	b := &pgx.Batch{}
	pg.QueueIsolation(b)
	found := pg.Collect(b, toCheckout, getSQL, s.TenantID, s.CheckoutID)
	pending := requestrows.QueuePending(b, []requestrows.CartVariant{{TenantID: s.TenantID, CartID: s.CartID}}, []bool{false})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return nil, fmt.Errorf("begin the checkout of cart %s: %w", s.CartID, err)
	}
	switch {
	case len(*found) > 0:
		return &(*found)[0], nil
	case len(*pending) > 0:
		return nil, ErrRequestsPending
	}
	return nil, nil
}

// insertSQL inserts nothing if the cart has an unfinished checkout.
const insertSQL = `
INSERT INTO checkouts AS c (tenant_id, checkout_id, cart_id, payment_reference, callback_url, holds, units, correlation_id, deadline, next_attempt_at)
VALUES ($1, $2, $3, $4, nullif($5, ''), $6, $7, nullif($8, ''), $9, $10)
ON CONFLICT DO NOTHING
RETURNING ` + columns

// insertTx inserts the record of a checkout, whose holds are locked to it.
func (s *Start) insertTx(ctx context.Context, tx pgx.Tx, cart *inventory.LockedCart, ttl time.Duration) (Checkout, error) {
	deadline := cart.Now.Add(ttl)
	next := deadline
	if s.CallbackURL != "" {
		next = cart.Now
	}
	b := &pgx.Batch{}
	inserted := pg.CollectOne(b, toCheckout, insertSQL, s.TenantID, s.CheckoutID, s.CartID, s.PaymentReference, s.CallbackURL,
		len(cart.Holds), cart.Units(), s.Origin.CorrelationID, deadline, next)
	if s.IdempotencyKey != "" {
		tenants.QueueKeepKey(b, s.TenantID, s.IdempotencyKey, s.CheckoutID)
	}
	err := tx.SendBatch(ctx, b).Close()
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Checkout{}, ErrCheckoutInProgress
	case err != nil:
		return Checkout{}, fmt.Errorf("record the checkout of cart %s: %w", s.CartID, err)
	}
	c := *inserted
	return c, audit.WriteTx(ctx, tx, []audit.Entry{{
		TenantID: c.TenantID, TargetID: c.CheckoutID, Action: EventBegun, Origin: s.Origin, After: c.state(),
	}})
}
