package checkouts

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/reservationrows"
)

// claimed is a checkout that a pass works on.
type claimed struct {
	Checkout
	// Left is how long before its deadline it was claimed. Late means that the
	// deadline has passed, and that it needs no first call of the Validator.
	Left time.Duration
	Late bool
}

// validates reports whether the checkout's next step is a call of the
// Validator.
func (c *claimed) validates() bool { return c.Status == Validating && !c.Late }

// unaskedMax is how often a checkout is claimed for its first call of the
// Validator after its deadline, counting all earlier claims of it.
const unaskedMax = 5

// claimSQL claims the checkout that has been due for longest. Checkouts that
// only wait for Answer are not due before their deadline. $1 is whether there
// is a Validator, and $2 are the tenants that may not have another call of it.
// A tenant that moves to another cell is left to that one. $3 is the timeout of
// an attempt, $4 and $5 are the least and the greatest
// backoff, and $6 is unaskedMax.
const claimSQL = `
WITH due AS MATERIALIZED (
    SELECT c.tenant_id, c.checkout_id, clock.now, step.late,
           clock.now + $3::interval + least($4::interval * power(2, least(c.attempt, 30)), $5::interval) AS again_at
    FROM checkouts c, (SELECT clock_timestamp() AS now) AS clock, LATERAL (
        SELECT c.deadline <= clock.now AND (c.asked OR c.callback_url IS NULL OR c.attempt >= $6 OR NOT $1::boolean) AS late
    ) AS step
    WHERE c.ended_at IS NULL AND c.next_attempt_at <= (SELECT clock_timestamp())
      AND (c.status = 'finalizing' OR step.late
           OR $1::boolean AND c.callback_url IS NOT NULL AND c.tenant_id <> ALL ($2::uuid[]))
      AND NOT EXISTS (SELECT FROM tenant_state m WHERE m.tenant_id = c.tenant_id AND m.state <> 'active')
    ORDER BY c.next_attempt_at
    LIMIT 1
    FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE checkouts c
SET attempt = c.attempt + 1,
    next_attempt_at = CASE WHEN c.status = 'validating' AND c.asked AND NOT due.late THEN least(c.deadline, due.again_at) ELSE due.again_at END
FROM due
WHERE c.tenant_id = due.tenant_id AND c.checkout_id = due.checkout_id
RETURNING ` + columns + `, due.late, c.deadline - due.now AS left`

// claim claims the checkout that has been due for longest, and returns nil if
// none is due.
func (r *Recovery) claim(ctx context.Context, full []uuid.UUID) (*claimed, error) {
	c, err := pg.SelectOne(ctx, r.db, pgx.RowToAddrOfStructByName[claimed], claimSQL,
		r.config.Validator != nil, ids(full), r.config.AttemptTimeout, r.config.BackoffMin, r.config.BackoffMax, unaskedMax)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("claim a due checkout: %w", err)
	}
	return c, nil
}

func ids(tenants []uuid.UUID) [][16]byte {
	raw := make([][16]byte, len(tenants))
	for i, id := range tenants {
		raw[i] = id
	}
	return raw
}

// take takes the next step of a claimed checkout, and returns its status then.
// A panic is an error of the checkout.
func (r *Recovery) take(ctx context.Context, c *claimed) (status Status, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	switch {
	case c.Status == Finalizing:
		return r.finalize(ctx, &c.Checkout)
	case c.Late:
		return r.timeOut(ctx, &c.Checkout)
	}
	if !c.Asked && c.Left < r.firstCallTakes() {
		if err := r.extend(ctx, c); err != nil { // asked all the same
			r.config.Log.WarnContext(ctx, "the deadline of a checkout could not be moved for the first call of its payment service",
				"tenant_id", c.TenantID, "checkout_id", c.CheckoutID, "error", err)
		}
	}
	result, err := r.validate(ctx, &c.Checkout)
	cut := ctx.Err() != nil
	if err != nil && !cut {
		r.config.Log.WarnContext(ctx, "the payment of a checkout could not be validated", "tenant_id", c.TenantID,
			"checkout_id", c.CheckoutID, "attempt", c.Attempt, "error", err)
	}
	// a shutdown does not lose what the call has returned
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.config.AttemptTimeout)
	defer cancel()
	if result == ResultPending {
		return Validating, r.postpone(ctx, &c.Checkout, !cut)
	}
	return r.answer(ctx, &c.Checkout, result)
}

// firstCallTakes is how long the first call of the Validator may take, until its
// answer is recorded.
func (r *Recovery) firstCallTakes() time.Duration { return r.config.AttemptTimeout + recoveryLockWait }

// errHoldLost means that a checkout has lost a hold.
var errHoldLost = errors.New("a hold of the checkout is lost")

// extend moves the deadline of a checkout so that its first call has the time
// that it may take, and the deadlines of its holds with it. It does not if a
// hold is lost: then an answer that it is paid comes too late.
func (r *Recovery) extend(ctx context.Context, c *claimed) error {
	deadline := c.Deadline
	err := r.steps.run(ctx, func(tx pgx.Tx) error {
		locked, now, err := lockTx(ctx, tx, c.TenantID, c.CheckoutID)
		if err != nil || locked.Status != Validating || locked.Asked {
			return err
		}
		kept, err := reservationrows.KeepCheckoutTx(ctx, tx, c.TenantID, c.CheckoutID, r.firstCallTakes()+Margin, c.recoveryOrigin())
		switch {
		case err != nil:
			return err
		case len(kept) < int(c.Holds):
			return errHoldLost
		}
		deadline = now.Add(r.firstCallTakes())
		return moveTx(ctx, tx, &locked, EventExtended, c.recoveryOrigin(), func(moved *Checkout) { moved.Deadline = deadline })
	})
	switch {
	case errors.Is(err, errHoldLost):
		return nil
	case err == nil:
		c.Deadline = deadline
	}
	return err
}

// validate calls the Validator. The result is ResultPending with any error.
func (r *Recovery) validate(ctx context.Context, c *Checkout) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, r.config.AttemptTimeout)
	defer cancel()
	result, err := r.config.Validator.Validate(ctx, *c)
	switch {
	case err != nil:
		return ResultPending, err
	case result != ResultPaid && result != ResultFailed && result != ResultPending:
		return ResultPending, fmt.Errorf("the validator returned the unknown result %.40q", result)
	}
	return result, nil
}

// postponeSQL leaves a checkout that another process has claimed since.
const postponeSQL = `
UPDATE checkouts c
SET next_attempt_at = least(c.deadline, clock_timestamp() + $4::interval), asked = c.asked OR $5
WHERE c.tenant_id = $1 AND c.checkout_id = $2 AND c.attempt = $3 AND c.status = 'validating'`

// postpone schedules the next call of the Validator, sooner than the claim did.
// A call that the end of the pass has cut does not count as one.
func (r *Recovery) postpone(ctx context.Context, c *Checkout, asked bool) error {
	_, err := r.db.Exec(ctx, postponeSQL, c.TenantID, c.CheckoutID, c.Attempt, r.config.backoff(c.Attempt), asked)
	return err
}

// answer records the result that the Validator returned, and takes the next step.
func (r *Recovery) answer(ctx context.Context, c *Checkout, result Result) (Status, error) {
	var a Answered
	err := r.steps.run(ctx, func(tx pgx.Tx) (err error) {
		a, err = AnswerTx(ctx, tx, Payment{c.TenantID, c.CheckoutID, result, c.recoveryOrigin()})
		return err
	})
	if err != nil {
		return "", err
	}
	ended, err := r.steps.next(ctx, a)
	return ended.Status, err
}

// finalize commits the holds of a finalizing checkout.
func (r *Recovery) finalize(ctx context.Context, c *Checkout) (Status, error) {
	ended, err := r.steps.finalize(ctx, c.TenantID, c.CheckoutID, c.recoveryOrigin())
	return ended.Status, err
}

// timeOut compensates a checkout that was not paid by its deadline.
func (r *Recovery) timeOut(ctx context.Context, c *Checkout) (Status, error) {
	var ended Checkout
	err := r.steps.run(ctx, func(tx pgx.Tx) (err error) {
		ended, err = timeoutTx(ctx, tx, c.TenantID, c.CheckoutID)
		return err
	})
	return ended.Status, err
}
