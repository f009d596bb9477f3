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
	// AmountMax bounds an amount, an actual cost and a limit, in any unit.
	AmountMax = 1_000_000_000_000_000
	// ChargesMax is how many charges one command has at most.
	ChargesMax = 8
	// windowsMax is for how many windows a scope keeps sums. The sums of
	// another window are counted from the ledger.
	windowsMax = 4
)

// BudgetConfig bounds a ledger. The zero value of a field is its default.
type BudgetConfig struct {
	// WindowMax is the longest window of a charge, up to 400 days; default 24
	// h. Purge of this ledger never deletes entries that such a window still
	// counts. If another program purges, it must keep entries at least as long,
	// or the ledger grants more than the limit. Holdfast's worker keeps them
	// for METERED_RETENTION, at least 24 h: a longer WindowMax needs an equally
	// long METERED_RETENTION. After WindowMax is raised, entries purged before
	// are not counted.
	WindowMax time.Duration
}

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

// NewBudgetLedger makes a ledger. The pool is for the verbs without Tx.
func NewBudgetLedger(db *pgxpool.Pool, config BudgetConfig) (*BudgetLedger, error) {
	if config.WindowMax == 0 {
		config.WindowMax = 24 * time.Hour
	}
	if config.WindowMax < time.Second || config.WindowMax > 400*24*time.Hour {
		return nil, fmt.Errorf("metered: want 1s ≤ window_max (%s) ≤ 9600h", config.WindowMax)
	}
	return &BudgetLedger{db, config.WindowMax}, nil
}

// Charge requests an amount of a budget.
type Charge struct {
	// Scope names the budget, 1–255 characters.
	Scope string
	// Amount is 1 to AmountMax, Limit 0 to AmountMax.
	Amount, Limit int64
	// Window is whole seconds, up to the ledger's WindowMax. A scope can be
	// charged under several windows; each counts all that was reserved in the
	// scope, under any window.
	Window time.Duration
}

func (c *Charge) validate(windowMax time.Duration) error {
	if err := validateText("scope", c.Scope, TextMax); err != nil {
		return err
	}
	switch {
	case c.Amount < 1 || c.Amount > AmountMax:
		return &InvalidError{Field: "amount", Message: fmt.Sprintf("must be between 1 and %d", AmountMax)}
	case c.Limit < 0 || c.Limit > AmountMax:
		return &InvalidError{Field: "limit", Message: fmt.Sprintf("must be between 0 and %d", AmountMax)}
	}
	return validateWindow(c.Window, windowMax)
}

func validateWindow(window, most time.Duration) error {
	if window < time.Second || window > most || window%time.Second != 0 {
		return &InvalidError{Field: "window", Message: "must be whole seconds, at most " + most.String()}
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

// OverBudgetError means that a charge did not fit. It is ErrOverBudget.
type OverBudgetError struct {
	Charge
	// Remaining and Wait are those of [Budget].
	Remaining int64
	Wait      time.Duration
}

func (e *OverBudgetError) Error() string {
	return fmt.Sprintf("metered: over budget: %d of %s asked for, %d of %d left in %s", e.Amount, e.Scope, e.Remaining, e.Limit, e.Window)
}

// Unwrap returns ErrOverBudget.
func (*OverBudgetError) Unwrap() error { return ErrOverBudget }

// TryReserve is [BudgetLedger.TryReserveTx] in a transaction of its own.
func (l *BudgetLedger) TryReserve(ctx context.Context, tenantID uuid.UUID, charge Charge) (Budget, error) {
	return inTx(ctx, l.db, func(tx pgx.Tx) (Budget, error) { return l.TryReserveTx(ctx, tx, tenantID, charge) })
}

// TryReserveTx reserves the amount in the caller's transaction if the sum over
// the window stays within the limit. It waits for other transactions that
// reserve in the scope. Rolled back, nothing was reserved.
//
// Refusals: an [*OverBudgetError], with which the state of the budget is
// returned too, and an [*InvalidError].
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
	if err := validateText("scope", scope, TextMax); err != nil {
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
