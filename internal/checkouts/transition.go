package checkouts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

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
