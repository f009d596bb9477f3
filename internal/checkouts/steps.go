package checkouts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/pg"
)

// ErrBusy means that a step could not begin, because the steps of other
// checkouts wait for locked stocks. Nothing was done.
var ErrBusy = errors.New("checkouts: other checkouts wait for locked stocks")

// Steps bounds the transactions that lock the stocks of checkouts: how many of
// them run at one time, and how long each of them waits for a lock. It is safe
// for concurrent use.
//
// A caller that stores more in the transaction of a step, such as an
// idempotency key, begins the transaction itself: it calls Enter, except for a
// payment that is paid, then LockTimeoutTx and the verb (BeginTx, AnswerTx) in
// the transaction, and Finish after the commit of AnswerTx.
type Steps struct {
	db      *pgxpool.Pool
	log     *slog.Logger
	running chan struct{} // one for each step
	// wait is how long a step waits until it may begin, and lockWait for each
	// lock. timeout bounds the transaction. 0 for wait and timeout: until
	// the context ends.
	wait, lockWait, timeout time.Duration
}

// The bounds of a step whose caller waits for it: the connection is not
// available to others.
const (
	callerWait     = 2 * time.Second
	callerLockWait = 500 * time.Millisecond
)

// NewSteps makes a Steps for callers that wait for the result. At most half of
// the pool's connections run steps: while one stock is locked by another
// transaction, callers that need no stock still get a connection.
func NewSteps(db *pgxpool.Pool, config Config) (*Steps, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	running := make(chan struct{}, max(1, db.Config().MaxConns/2))
	return &Steps{db: db, log: config.Log, running: running, wait: callerWait, lockWait: callerLockWait}, nil
}

// Enter waits until a further step may begin, for two seconds at most. The
// caller calls leave after the transaction of the step.
//
// Errors: ErrBusy; ctx's.
func (s *Steps) Enter(ctx context.Context) (leave func(), err error) {
	var late <-chan time.Time
	if s.wait > 0 {
		timer := time.NewTimer(s.wait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case s.running <- struct{}{}:
		return func() { <-s.running }, nil
	case <-late:
		return nil, ErrBusy
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

const lockTimeoutSQL = `SELECT set_config('lock_timeout', $1, true)`

// LockTimeoutTx bounds each later wait for a lock in the transaction of a step:
// half a second. It is correct at every isolation level.
func (s *Steps) LockTimeoutTx(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, lockTimeoutSQL, fmt.Sprint(s.lockWait.Milliseconds()))
	return err
}

// run runs a step in a transaction.
func (s *Steps) run(ctx context.Context, step func(tx pgx.Tx) error) error {
	leave, err := s.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(lockTimeoutSQL, fmt.Sprint(s.lockWait.Milliseconds()))
		pg.QueueLookUp(b)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return step(tx)
	})
}

// Finish does what follows the commit of AnswerTx: it reports an alert that the
// answer has raised, and commits the holds of a paid checkout. It returns the
// checkout as it is then. If the holds can't be committed now, it logs why and
// returns the finalizing checkout, which recovery commits later.
//
// The error is a.Conflict, or a *ConflictError if the checkout has lost a hold.
func (s *Steps) Finish(ctx context.Context, a Answered) (Checkout, error) {
	ended, err := s.next(ctx, a)
	switch {
	case err != nil:
		s.log.WarnContext(ctx, "a paid checkout is left to recovery", "tenant_id", a.payment.TenantID,
			"checkout_id", a.payment.CheckoutID, "error", err)
		return a.Checkout, nil
	case a.Conflict != nil:
		return ended, a.Conflict
	case ended.Status == Failed:
		return ended, &ConflictError{CheckoutID: ended.CheckoutID, Status: ended.Status}
	}
	return ended, nil
}

// next is Finish with the error of a commit that fails, and without conflicts.
func (s *Steps) next(ctx context.Context, a Answered) (Checkout, error) {
	switch {
	case a.Conflict != nil && a.Conflict.Raised != "":
		reportAlert(ctx, s.log, a.Checkout, a.Conflict.Raised)
	case a.Conflict == nil && a.Checkout.Status == Finalizing:
		return s.finalize(ctx, a.payment.TenantID, a.payment.CheckoutID, a.payment.Origin)
	}
	return a.Checkout, nil
}

// finalize is finalizeTx in a transaction of the step. It waits at most lockWait
// for each lock. Recovery repeats a commit that has failed.
func (s *Steps) finalize(ctx context.Context, tenantID, checkoutID uuid.UUID, origin audit.Origin) (c Checkout, err error) {
	raised := false
	err = s.run(ctx, func(tx pgx.Tx) error {
		c, raised, err = finalizeTx(ctx, tx, tenantID, checkoutID, origin)
		return err
	})
	if err != nil {
		return Checkout{}, fmt.Errorf("finalize checkout %s: %w", checkoutID, err)
	}
	if raised {
		reportAlert(ctx, s.log, c, StockLost)
	}
	return c, nil
}
