package metered

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Bounds of a charge.
const (
	// AmountMax bounds an amount, an actual cost and a limit; whatever the unit.
	AmountMax = 1_000_000_000_000_000
	// ChargesMax is how many charges one pass has at most.
	ChargesMax = 8
	// windowsMax is how many windows' sums a scope keeps. Those of another window are counted anew from the ledger.
	windowsMax = 4
)

// BudgetConfig bounds a ledger. The zero value of a field is its default.
type BudgetConfig struct {
	// WindowMax is the longest window that can be asked for, up to 400 days; default 24 h. Purge of this ledger never deletes
	// what such a window still counts. Whoever else purges must keep entries at least as long, or more is granted than the
	// limit: Holdfast's worker keeps them for METERED_RETENTION, at least 24 h, so a longer WindowMax needs that to be as
	// long. When WindowMax is made longer, what was purged before is not counted.
	WindowMax time.Duration
}

// BudgetLedger reserves amounts within limits. The unit is the caller's: credits, calls, millionths of a currency.
//
// A window slides. It is cut into 60 buckets, by the scope's own moments, and an amount counts until the last bucket it
// can be in has left the window: never less than a window, at most a sixtieth longer. So a reservation is refused a
// little too long perhaps, and never granted too early; what a scope grants in any stretch of one window's length is
// within the limit. The sums stand in the scope's row, under its lock, so they cost the same whatever the ledger holds.
//
// If the database's clock is set back, a scope's own clock goes on from its last moment: what is in the window leaves it as
// if nothing had happened, instead of only when the database's clock has caught up. A clock that is set forward makes the
// windows shorter, once, by as much.
//
// Reservations on one scope take turns until the transaction ends; reservations on different scopes never wait for each
// other. It is safe for concurrent use, in any number of processes.
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

// Charge asks for room in a budget.
type Charge struct {
	// Scope is what the budget is of, 1–255 characters.
	Scope string
	// Amount is 1 to AmountMax, Limit 0 to AmountMax.
	Amount, Limit int64
	// Window is whole seconds, up to the ledger's WindowMax. A scope can be asked about several windows; each counts all
	// that was reserved in the scope, under whatever window.
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

// Reservation names an amount that was reserved. It can be kept as JSON, and settled once.
type Reservation struct {
	Scope string `json:"scope"`
	// ReservedAt is its moment by the scope's clock, which no other entry of the scope shares, to the microsecond.
	ReservedAt time.Time `json:"reserved_at"`
	Amount     int64     `json:"amount"`
}

// Budget is what came of a charge.
type Budget struct {
	// Reserved says that the amount is now reserved, as Reservation.
	Reserved    bool
	Reservation Reservation
	// Remaining is what could still be reserved under the same limit, right after; never below 0.
	Remaining int64
	// Wait is after how long the amount fits if nothing else is reserved meanwhile: 0 if it was reserved or fitted, below 0
	// if it never will, because it is more than the limit.
	Wait time.Duration
	// Reset is after how long all that counts now has left the window; 0 if nothing counts.
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
