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
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Report is what one pass of recovery did, in checkouts.
type Report struct {
	// Claimed were due, a checkout once for each time it was due. Committed,
	// Compensated and Failed were ended by this pass.
	Claimed     int `json:"claimed"`
	Committed   int `json:"committed"`
	Compensated int `json:"compensated"`
	Failed      int `json:"failed"`
	// Pending wait for their payment: the Validator answered ResultPending or
	// returned an error.
	Pending int `json:"pending"`
	// AskedLate are those of Claimed for which the Validator was first called
	// after their deadline, because it could not be called sooner.
	AskedLate int `json:"asked_late"`
	// Errors could not be ended. A later pass tries them again.
	Errors int `json:"errors"`
	// More means that the pass ended at its bound, or at the end of its
	// context, before it found no due checkout.
	More bool `json:"more"`
}

// Unfinished reports whether the pass ended at a bound and did something, so
// that the next one should begin at once.
func (r *Report) Unfinished() bool { return r.More && r.Claimed > 0 }

// add counts how a checkout was left.
func (r *Report) add(left outcome) {
	switch {
	case left.err != nil:
		r.Errors++
	case left.status == Committed:
		r.Committed++
	case left.status == Compensated:
		r.Compensated++
	case left.status == Failed:
		r.Failed++
	default:
		r.Pending++
	}
}

// Recovery ends the checkouts that a process has left between two steps, that
// were not paid by their deadline, or whose payment a Validator has found out
// about. Several processes may run one at once.
//
// A checkout is claimed before anything is done with it: its attempt is counted
// and its next attempt is scheduled, in one transaction. So a checkout whose
// process dies, or which cannot be ended, is taken again after
// Config.AttemptTimeout and a backoff that doubles, and does not delay others.
//
// A checkout with a CallbackURL does not time out before a call of the
// Validator has ended, however late the first call begins. If less time than
// the first call may take is left until the deadline, or the deadline has
// passed, the deadline is moved before the call (checkout.extended), unless a
// hold is lost. The exception is a checkout of which unaskedMax claims have
// ended without a call, because their processes died.
type Recovery struct {
	db     *pgxpool.Pool
	config Config
	steps  *Steps
}

const (
	// recoveryStepsMax is how many checkouts a Recovery ends at once. Calls of a
	// Validator do not count: they use no connection.
	recoveryStepsMax = 4
	// recoveryLockWait is how long a step of a Recovery waits for each lock.
	recoveryLockWait = 2 * time.Second
)

// NewRecovery makes a Recovery.
func NewRecovery(db *pgxpool.Pool, config Config) (*Recovery, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	steps := &Steps{
		db: db, log: config.Log, running: make(chan struct{}, recoveryStepsMax), lockWait: recoveryLockWait, timeout: config.AttemptTimeout,
	}
	return &Recovery{db: db, config: config, steps: steps}, nil
}

// outcome is how one checkout was left.
type outcome struct {
	Checkout
	validated bool // it was one of its tenant's calls
	status    Status
	err       error
}

// pass is the state of one RunOnce.
type pass struct {
	*Recovery
	report  Report
	ended   chan outcome
	running int
	calling map[uuid.UUID]int // calls of the Validator, by tenant
	err     error             // the first that is not of one checkout's lock
}

// RunOnce is one pass: it takes the checkouts that are due, several at once,
// until none is due and all calls of the Validator have ended, or until it has
// taken Config.PassMax. It takes them in the order in which they became due, so
// a checkout that was never asked for does not wait for the repeated call of
// one that became due later. While a slow Validator keeps a tenant's calls
// waiting, the pass goes on with other tenants, and with the checkouts of that
// tenant that need no call.
//
// A checkout that cannot be ended is logged and counted. If the database
// refused its rows, the error is also returned, after all others are done. An
// outage ends the pass.
//
// A pass that reaches the deadline of ctx after it has ended a checkout reports
// More without an error.
func (r *Recovery) RunOnce(ctx context.Context) (Report, error) {
	p := &pass{Recovery: r, ended: make(chan outcome, r.config.Concurrency), calling: make(map[uuid.UUID]int)}
	p.claimDue(ctx)
	for p.running > 0 {
		p.leave(ctx, <-p.ended)
	}
	switch {
	case p.err == nil:
		return p.report, nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && p.report.Claimed > p.report.Errors:
		p.report.More = true
		return p.report, nil
	}
	return p.report, fmt.Errorf("recover checkouts: %w", p.err)
}

// claimDue claims checkouts until none is due and none is being worked on, or
// until a bound.
func (p *pass) claimDue(ctx context.Context) {
	pause := time.NewTicker(p.config.Every)
	defer pause.Stop()
	for !pg.IsOutage(p.err) && ctx.Err() == nil {
		if p.report.Claimed == p.config.PassMax {
			p.report.More = true
			return
		}
		if p.running < p.config.Concurrency {
			due, err := p.claim(ctx, p.full())
			if err != nil {
				p.err = err
				return
			}
			if due != nil {
				p.start(ctx, due)
				continue
			}
			if p.running == 0 {
				return
			}
		}
		select {
		case left := <-p.ended:
			p.leave(ctx, left)
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	if p.err == nil {
		p.err = ctx.Err()
	}
}

// full returns the tenants that may not have another call of the Validator. A
// tenant may have as many calls as the pass has capacity left, which is the
// rule of package fair: one tenant alone uses half of the capacity, two use a
// third each, and a tenant without a call can always have one.
func (p *pass) full() (tenants []uuid.UUID) {
	left := p.config.Concurrency - p.running
	for tenant, n := range p.calling {
		if n >= left {
			tenants = append(tenants, tenant)
		}
	}
	return tenants
}

// start works on a claimed checkout.
func (p *pass) start(ctx context.Context, due *claimed) {
	p.report.Claimed++
	p.running++
	if due.validates() {
		p.calling[due.TenantID]++
		if !due.Asked && due.Left <= 0 {
			p.report.AskedLate++
			telemetry.CheckoutAskedLate(ctx)
		}
	}
	go func() {
		status, err := p.take(ctx, due)
		p.ended <- outcome{Checkout: due.Checkout, validated: due.validates(), status: status, err: err}
	}()
}

// leave counts a checkout that was worked on.
func (p *pass) leave(ctx context.Context, left outcome) {
	p.running--
	p.report.add(left)
	if left.validated {
		p.calling[left.TenantID]--
	}
	if left.err == nil || ctx.Err() != nil {
		return
	}
	p.config.Log.WarnContext(ctx, "a checkout is left to a later pass of recovery", "tenant_id", left.TenantID,
		"checkout_id", left.CheckoutID, "status", left.Checkout.Status, "attempt", left.Attempt, "error", left.err)
	if p.err == nil && !pg.IsRetryable(left.err) {
		p.err = fmt.Errorf("checkout %s of tenant %s: %w", left.CheckoutID, left.TenantID, left.err)
	}
}

const oldestDueSQL = `
SELECT greatest(extract(epoch FROM clock_timestamp() - c.next_attempt_at), 0)::double precision
FROM checkouts c
WHERE c.ended_at IS NULL
ORDER BY c.next_attempt_at
LIMIT 1`

// OldestDue returns how long the checkout that is longest due waits for
// recovery, 0 if none is due.
func OldestDue(ctx context.Context, db audit.Querier) (time.Duration, error) {
	seconds, err := pg.Select(ctx, db, pgx.RowTo[float64], oldestDueSQL)
	if err != nil {
		return 0, fmt.Errorf("find the checkout that is longest due: %w", err)
	}
	if len(seconds) == 0 {
		return 0, nil
	}
	return time.Duration(seconds[0] * float64(time.Second)), nil
}
