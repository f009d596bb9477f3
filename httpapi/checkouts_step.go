package httpapi

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast/holdfast/admission"
	"github.com/holdfast/holdfast/checkouts"
)

// stepWait is how long a request waits until it may lock the stocks of a
// checkout.
const stepWait = 2 * time.Second

// stepLockTimeoutSQL bounds each wait for a lock in a transaction of a checkout.
const stepLockTimeoutSQL = `SELECT set_config('lock_timeout', '500ms', true)`

// newSteps makes the semaphore of the transactions that lock the stocks of
// checkouts. It has fewer places than the pool has connections: while one stock
// is locked by another transaction, requests that need no stock still get a
// connection.
func newSteps(connections int32) chan struct{} { return make(chan struct{}, max(1, connections/2)) }

// enterStep waits for a place in s.steps, for stepWait at most. leave gives it
// back.
//
// Errors: admission.ErrOverloaded; ctx's.
func (s *service) enterStep(ctx context.Context) (leave func(), err error) {
	timer := time.NewTimer(stepWait)
	defer timer.Stop()
	select {
	case s.steps <- struct{}{}:
		return func() { <-s.steps }, nil
	case <-timer.C:
		return nil, fmt.Errorf("other checkouts wait for locked stocks: %w", admission.ErrOverloaded)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// boundedStep sets the transaction's lock_timeout before the work.
func boundedStep(work func(ctx context.Context, tx pgx.Tx) (any, error)) func(ctx context.Context, tx pgx.Tx) (any, error) {
	return func(ctx context.Context, tx pgx.Tx) (any, error) {
		if _, err := tx.Exec(ctx, stepLockTimeoutSQL); err != nil {
			return nil, err
		}
		return work(ctx, tx)
	}
}

// runStep is runTxAs for a step that locks the stocks of a checkout.
func (s *service) runStep(ctx context.Context, req *request, status int, work func(ctx context.Context, tx pgx.Tx) (any, error)) (response, error) {
	leave, err := s.enterStep(ctx)
	if err != nil {
		return response{}, err
	}
	defer leave()
	return s.runTxAs(ctx, req, status, boundedStep(work))
}

// finalize commits the holds of a paid checkout.
func (s *service) finalize(ctx context.Context, p checkouts.Payment) (checkouts.Checkout, error) {
	leave, err := s.enterStep(ctx)
	if err != nil {
		return checkouts.Checkout{}, err
	}
	defer leave()
	return checkouts.Finalize(ctx, s.pool, p.TenantID, p.CheckoutID, p.Origin, s.checkouts)
}
