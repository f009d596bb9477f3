package checkouts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/reservations"
)

// Status is the status of a checkout.
type Status string

// The five statuses. The last three are final.
const (
	Validating  Status = "validating"
	Finalizing  Status = "finalizing"
	Committed   Status = "committed"
	Compensated Status = "compensated"
	Failed      Status = "failed"
)

// Ended reports whether the status is final.
func (s Status) Ended() bool { return s == Committed || s == Compensated || s == Failed }

// Reason is why a checkout was compensated or failed.
type Reason string

// PaymentFailed and PaymentTimeout are the reasons of a compensated checkout:
// the payment failed, or was not reported as paid by the deadline. LostStock is
// the reason of a failed one: it was paid, and a hold was lost.
const (
	PaymentFailed  Reason = "payment_failed"
	PaymentTimeout Reason = "payment_timeout"
	LostStock      Reason = "stock_lost"
)

// Alert is why a person must act: the customer has paid, and does not receive
// the units.
type Alert string

// PaidTooLate means that a payment was reported after the checkout was
// compensated, or after its deadline. StockLost means that a hold was lost
// after the payment.
const (
	PaidTooLate Alert = "paid_too_late"
	StockLost   Alert = "stock_lost"
)

// Checkout is a row of the checkouts table. Times are the database's.
type Checkout struct {
	TenantID, CheckoutID uuid.UUID
	CartID               string
	// PaymentReference is the shop's name of the payment.
	PaymentReference string
	// CallbackURL is where a Validator asks for the payment; empty if the shop
	// answers on its own.
	CallbackURL string
	Status      Status
	// Reason is given for a compensated and a failed checkout.
	Reason Reason
	// Alert is the alert that the checkout has raised, "" for none.
	Alert Alert
	// Holds and Units count what was locked to the checkout.
	Holds int32
	Units int64
	// Attempt counts how often recovery has taken the checkout. Asked means that
	// a call of the Validator has ended, with whatever result.
	Attempt       int32
	Asked         bool
	CorrelationID string
	// Deadline is when an unpaid checkout is compensated. NextAttemptAt is when
	// recovery takes an unfinished checkout next.
	Deadline, NextAttemptAt time.Time
	CreatedAt, UpdatedAt    time.Time
	// EndedAt is when it was committed, compensated or failed; nil before.
	EndedAt *time.Time
}

var (
	// ErrNotFound means that the tenant has no such checkout.
	ErrNotFound = errors.New("checkout: not found")
	// ErrIDReused means that the tenant has a checkout of that id, of another
	// cart or payment.
	ErrIDReused = errors.New("checkout: the id belongs to another checkout")

	// ErrRequestsPending means that requests of the cart are not decided yet.
	ErrRequestsPending = requestrows.ErrRequestsPending
	// ErrHoldExpired means that a hold of the cart has expired, and its variant
	// was neither removed nor added again since.
	ErrHoldExpired = inventory.ErrHoldExpired
	// ErrCartEmpty means that the cart holds nothing.
	ErrCartEmpty = inventory.ErrCartEmpty
	// ErrCheckoutInProgress means that the cart has an unfinished checkout.
	ErrCheckoutInProgress = reservationrows.ErrCheckoutInProgress
)

// ConflictError means that a payment's answer does not agree with the status of
// the checkout.
type ConflictError struct {
	CheckoutID uuid.UUID
	// Status is that of the checkout after the answer.
	Status Status
	// Raised is the alert that this answer has raised, "" for none.
	Raised Alert
}

// Error names the checkout and its status.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("checkout: %s is %s", e.CheckoutID, e.Status)
}

// columns is the one column list of a Checkout.
const columns = `c.tenant_id, c.checkout_id, c.cart_id, c.payment_reference, coalesce(c.callback_url, '') AS callback_url,
       c.status, coalesce(c.reason, '') AS reason, coalesce(c.alert, '') AS alert, c.holds, c.units, c.attempt, c.asked,
       coalesce(c.correlation_id, '') AS correlation_id, c.deadline, c.next_attempt_at, c.created_at, c.updated_at, c.ended_at`

func toCheckout(row pgx.CollectableRow) (Checkout, error) {
	return pgx.RowToStructByName[Checkout](row)
}

const getSQL = `SELECT ` + columns + ` FROM checkouts c WHERE c.tenant_id = $1 AND c.checkout_id = $2`

// Get returns one checkout of the tenant, or ErrNotFound. It locks nothing.
func Get(ctx context.Context, db audit.Querier, tenantID, checkoutID uuid.UUID) (Checkout, error) {
	c, err := pg.SelectOne(ctx, db, toCheckout, getSQL, tenantID, checkoutID)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Checkout{}, fmt.Errorf("%w: %s", ErrNotFound, checkoutID)
	case err != nil:
		return Checkout{}, fmt.Errorf("read checkout %s: %w", checkoutID, err)
	}
	return c, nil
}

// Holds returns what was locked to a checkout, in the order of the
// reservations' ids: held while it is unfinished, and committed once it is. It
// is empty for a checkout that does not exist. It locks nothing.
func Holds(ctx context.Context, db audit.Querier, tenantID, checkoutID uuid.UUID) ([]reservations.Reservation, error) {
	return reservationrows.OfCheckout(ctx, db, tenantID, checkoutID)
}

const lockSQL = getSQL + ` FOR NO KEY UPDATE`

// lockTx locks a checkout, and then reads the database's clock. Errors:
// ErrNotFound.
func lockTx(ctx context.Context, tx pgx.Tx, tenantID, checkoutID uuid.UUID) (c Checkout, now time.Time, err error) {
	b := &pgx.Batch{}
	locked := pg.CollectOne(b, toCheckout, lockSQL, tenantID, checkoutID)
	pg.QueueClock(b, &now)
	err = tx.SendBatch(ctx, b).Close()
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Checkout{}, now, fmt.Errorf("%w: %s", ErrNotFound, checkoutID)
	case err != nil:
		return Checkout{}, now, fmt.Errorf("lock checkout %s: %w", checkoutID, err)
	}
	return *locked, now, nil
}

// The actions of a checkout's audit rows. Their target is the checkout.
const (
	EventBegun       = "checkout.begun"
	EventExtended    = "checkout.extended"
	EventPaid        = "checkout.paid"
	EventCommitted   = "checkout.committed"
	EventCompensated = "checkout.compensated"
	EventFailed      = "checkout.failed"
	EventAlert       = "checkout.alert"
)

// state is a checkout as its audit row records it. The callback's URL is left
// out, because it may contain a secret.
type state struct {
	Status           Status    `json:"status"`
	Reason           Reason    `json:"reason,omitempty"`
	Alert            Alert     `json:"alert,omitempty"`
	CartID           string    `json:"cart_id"`
	PaymentReference string    `json:"payment_reference"`
	Holds            int32     `json:"holds"`
	Units            int64     `json:"units"`
	Deadline         time.Time `json:"deadline"`
}

// state returns what the audit row records.
func (c *Checkout) state() json.RawMessage {
	b, err := json.Marshal(state{
		Status: c.Status, Reason: c.Reason, Alert: c.Alert, CartID: c.CartID, PaymentReference: c.PaymentReference,
		Holds: c.Holds, Units: c.Units, Deadline: c.Deadline.UTC(),
	})
	if err != nil { // these fields always marshal
		panic(err)
	}
	return b
}

// errChanged means that a checkout was changed without its lock.
var errChanged = errors.New("the checkout has changed since it was locked")

// moveSQL is guarded by the status that it leaves.
const moveSQL = `
UPDATE checkouts c
SET status = $3, reason = nullif($4, ''), alert = nullif($5, ''), next_attempt_at = $6, deadline = $7, ended_at = $8, updated_at = clock_timestamp()
WHERE c.tenant_id = $1 AND c.checkout_id = $2 AND c.status = $9
RETURNING ` + columns

// moveTx writes a locked checkout after change, and one audit row of the
// action.
func moveTx(ctx context.Context, tx pgx.Tx, c *Checkout, action string, origin audit.Origin, change func(c *Checkout)) error {
	left, before := c.Status, c.state()
	change(c)
	if origin.Reason == "" {
		origin.Reason = string(c.Reason)
	}
	b := &pgx.Batch{}
	moved := pg.CollectOne(b, toCheckout, moveSQL, c.TenantID, c.CheckoutID, c.Status, c.Reason, c.Alert, c.NextAttemptAt, c.Deadline, c.EndedAt, left)
	audit.Queue(b, []audit.Entry{{
		TenantID: c.TenantID, TargetID: c.CheckoutID, Action: action, Origin: origin, Before: before, After: c.state(),
	}})
	err := tx.SendBatch(ctx, b).Close()
	if errors.Is(err, pgx.ErrNoRows) {
		err = errChanged
	}
	if err != nil {
		return fmt.Errorf("%s of checkout %s: %w", action, c.CheckoutID, err)
	}
	*c = *moved
	return nil
}

// reportAlert logs an alert at level ERROR and counts it
// (holdfast_checkout_alerts_total), once the transaction that has raised it is
// committed.
func reportAlert(ctx context.Context, log *slog.Logger, c Checkout, alert Alert) {
	telemetry.CheckoutAlert(ctx, string(alert))
	log.ErrorContext(ctx, "a paid checkout does not receive its units: the payment must be given back", "alert", alert,
		"tenant_id", c.TenantID, "checkout_id", c.CheckoutID, "cart_id", c.CartID, "payment_reference", c.PaymentReference, "status", c.Status)
}

// purgeSQL reads the clock in a sub-select, which makes it one value that
// bounds the index scan.
const purgeSQL = `
WITH old AS MATERIALIZED (
    SELECT c.tenant_id, c.checkout_id
    FROM checkouts c
    WHERE c.ended_at IS NOT NULL AND c.ended_at < (SELECT clock_timestamp()) - $1::interval
    ORDER BY c.ended_at
    LIMIT $2
    FOR UPDATE SKIP LOCKED
)
DELETE FROM checkouts c
USING old
WHERE c.tenant_id = old.tenant_id AND c.checkout_id = old.checkout_id
RETURNING c.tenant_id, c.checkout_id`

// Purged counts what a purge deleted: checkouts, and the idempotency keys with
// which they were begun.
type Purged struct{ Checkouts, Keys int64 }

// PurgeEnded deletes up to limit checkouts, of all tenants, that ended longer
// ago than retention by the database's clock, the oldest first, each with the
// key of the call that began it. It waits for no lock. Several processes may
// run it at once.
func PurgeEnded(ctx context.Context, db *pgxpool.Pool, retention time.Duration, limit int) (purged Purged, err error) {
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		type name struct{ TenantID, CheckoutID [16]byte }
		names, err := pg.Select(ctx, tx, pgx.RowToStructByPos[name], purgeSQL, retention, limit)
		purged = Purged{Checkouts: int64(len(names))}
		if err != nil || len(names) == 0 {
			return err
		}
		tenantIDs, checkoutIDs := make([][16]byte, len(names)), make([][16]byte, len(names))
		for i, n := range names {
			tenantIDs[i], checkoutIDs[i] = n.TenantID, n.CheckoutID
		}
		purged.Keys, err = tenants.DeleteKeysTx(ctx, tx, tenantIDs, checkoutIDs)
		return err
	})
	if err != nil {
		return Purged{}, fmt.Errorf("purge ended checkouts: %w", err)
	}
	return purged, nil
}
