package metered

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/telemetry"
)

// Bounds of a charge.
const (
	// amountMax bounds an amount, an actual cost and a limit, in any unit.
	amountMax = 1_000_000_000_000_000
	// chargesMax is how many charges one command has at most.
	chargesMax = 8
	// windowsMax is for how many windows a scope keeps sums. The sums of
	// another window are counted from the ledger.
	windowsMax = 4
)

// BudgetLedger reserves amounts within limits. The unit is the caller's:
// credits, calls, millionths of a currency.
//
// A window slides. It is a sliding-window counter of 60 buckets, by the scope's
// own clock. An amount counts until its bucket has left the window: one window
// at least, a sixtieth longer at most. So a refusal may last slightly too long,
// and no reservation is granted too early: what a scope grants in any period of
// one window's length is within the limit. The sums are in the scope's row,
// under its lock, so they cost the same whatever the ledger holds.
//
// If the database's clock is set back, a scope's own clock continues from its
// last moment. So amounts leave the window after one window, and not only when
// the database's clock has caught up. If the clock is set forward, the windows
// are shorter by that difference, once.
//
// Reservations on one scope run one after the other until their transactions
// end. Reservations on different scopes never wait for each other. It is safe
// for concurrent use, in any number of processes.
type BudgetLedger struct {
	db        *pgxpool.Pool
	windowMax time.Duration
}

// Charge requests an amount of a budget.
type Charge struct {
	// Scope names the budget, 1–255 characters.
	Scope string
	// Amount is 1 to 10¹⁵, Limit 0 to 10¹⁵.
	Amount, Limit int64
	// Window is whole seconds, up to the ledger's WindowMax. A scope can be
	// charged under several windows; each counts all that was reserved in the
	// scope, under any window.
	Window time.Duration
}

func (c *Charge) validate(windowMax time.Duration) error {
	if err := validateText("scope", c.Scope, textMax); err != nil {
		return err
	}
	switch {
	case c.Amount < 1 || c.Amount > amountMax:
		return invalidField("amount", "must be between 1 and %d", amountMax)
	case c.Limit < 0 || c.Limit > amountMax:
		return invalidField("limit", "must be between 0 and %d", amountMax)
	}
	return validateWindow(c.Window, windowMax)
}

func validateWindow(window, most time.Duration) error {
	if window < time.Second || window > most || window%time.Second != 0 {
		return invalidField("window", "must be whole seconds, at most %s", most)
	}
	return nil
}

// Reservation names an amount that was reserved. It can be stored as JSON, and
// settled once.
type Reservation struct {
	Scope string `json:"scope"`
	// ReservedAt is the moment of the reservation by the scope's clock, in
	// microseconds. It is unique in the scope.
	ReservedAt time.Time `json:"reserved_at"`
	Amount     int64     `json:"amount"`
}

// Budget is the state of a budget after a charge.
type Budget struct {
	// Reservation is what was reserved, the zero value for nothing.
	Reservation Reservation
	// Remaining is what could still be reserved under the same limit right
	// after the charge; never negative.
	Remaining int64
	// Wait is the time until the amount fits if nothing else is reserved: 0 if
	// it was reserved or fitted, negative if it exceeds the limit and never
	// fits.
	Wait time.Duration
	// Reset is the time until all amounts that count now have left the window;
	// 0 if nothing counts.
	Reset time.Duration
}

// TryReserve is [BudgetLedger.TryReserveTx] in a transaction of its own.
func (l *BudgetLedger) TryReserve(ctx context.Context, tenantID uuid.UUID, charge Charge) (Budget, error) {
	return inTx(ctx, l.db, func(tx pgx.Tx) (Budget, error) { return l.TryReserveTx(ctx, tx, tenantID, charge) })
}

// TryReserveTx reserves the amount in the caller's transaction if the sum over
// the window stays within the limit. It waits for other transactions that
// reserve in the scope. Rolled back, nothing was reserved.
//
// Refusals: [ErrOverBudget], with which the state of the budget is returned
// too, and [ErrInvalid].
//
// It is correct at every isolation level. Above READ COMMITTED a lost race is a
// serialization failure (SQLSTATE 40001).
func (l *BudgetLedger) TryReserveTx(ctx context.Context, tx pgx.Tx, tenantID uuid.UUID, charge Charge) (_ Budget, err error) {
	ctx, done := telemetry.Verb(ctx, "metered.reserve")
	defer func() { done(outcomeOf(err)) }()
	p := price{tenant: tenantID, charges: []Charge{charge}}
	if err := p.validate(l.windowMax); err != nil {
		return Budget{}, err
	}
	_, budgets, err := p.payTx(ctx, tx)
	if len(budgets) == 0 {
		return Budget{}, err
	}
	return budgets[0], err
}

const scopeSQL = `
SELECT coalesce(s.sums, '{}'), coalesce(s.last_at, 'epoch'), coalesce(s.ahead, 0), clock_timestamp()
FROM (SELECT $1::uuid AS tenant_id, $2::text AS scope) AS asked
LEFT JOIN budget_scopes s USING (tenant_id, scope)`

const sumSQL = `
SELECT least(coalesce(sum(l.amount), 0), 9223372036854775807)::bigint
FROM budget_ledger l
WHERE l.tenant_id = $1 AND l.scope = $2 AND l.recorded_at >= $3
  AND (l.reserved_at IS NULL OR l.reserved_at >= $3)`

// WindowedSum is what counts in the scope now: what [BudgetLedger.TryReserveTx]
// would compare with a limit. It only reads. If the scope keeps the window, it
// costs one row, whatever the ledger holds. For another window it reads the
// ledger's rows of that time.
func (l *BudgetLedger) WindowedSum(ctx context.Context, tenantID uuid.UUID, scope string, window time.Duration) (int64, error) {
	if err := validateTenant(tenantID); err != nil {
		return 0, err
	}
	if err := validateText("scope", scope, textMax); err != nil {
		return 0, err
	}
	if err := validateWindow(window, l.windowMax); err != nil {
		return 0, err
	}
	var (
		sums        []int64
		lastAt, now time.Time
		s           lockedScope // though not locked
	)
	if err := l.db.QueryRow(ctx, scopeSQL, tenantID, scope).Scan(&sums, &lastAt, &s.ahead, &now); err != nil {
		return 0, fmt.Errorf("sum of %s: %w", scope, err)
	}
	s.lastAt = lastAt.UnixMicro()
	s.adjustClock(now.UnixMicro())
	clock := s.clock(now.UnixMicro())
	r := rollup{seconds: int64(window / time.Second)}
	for rest := sums; len(rest) >= 3; rest = rest[3:] {
		if rest[0] == r.seconds {
			r.buckets = append(r.buckets, bucket{rest[1], rest[2]})
		}
	}
	if len(r.buckets) > 0 || len(sums) == 0 { // a scope without any sums has no entries that count
		return r.sum(clock), nil
	}
	rows, _ := l.db.Query(ctx, sumSQL, tenantID, scope, moment(r.oldest(clock)*r.width()))
	sum, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("sum of %s: %w", scope, err)
	}
	return sum, nil
}
