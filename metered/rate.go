package metered

import (
	"fmt"
	"time"
)

// RatesMax is how many rates one visit is counted in at most.
const RatesMax = 4

// Rate asks to be counted in a rate: Limit at once, refilled evenly over Window. It is for how often somebody may call:
// it leaves no entry and can't be settled, unlike a [Charge].
type Rate struct {
	// Scope is what is limited, 1–255 characters. Rates and budgets of one name know nothing of each other.
	Scope string
	// Amount is how much of the limit this one takes, Limit how much there is: 1 to AmountMax each.
	Amount, Limit int64
	// Window is how long an empty rate takes to be full again, 1 s to RateWindowMax.
	Window time.Duration
}

// RateWindowMax bounds a rate's window.
const RateWindowMax = 24 * time.Hour

func (r *Rate) validate() error {
	if err := validateText("scope", r.Scope, TextMax); err != nil {
		return err
	}
	switch {
	case r.Amount < 1 || r.Amount > AmountMax:
		return &InvalidError{Field: "amount", Message: fmt.Sprintf("must be between 1 and %d", AmountMax)}
	case r.Limit < 1 || r.Limit > AmountMax:
		return &InvalidError{Field: "limit", Message: fmt.Sprintf("must be between 1 and %d", AmountMax)}
	case r.Window < time.Second || r.Window > RateWindowMax:
		return &InvalidError{Field: "window", Message: "must be between 1s and " + RateWindowMax.String()}
	}
	return nil
}

// Standing is how a rate stands.
type Standing struct {
	// Remaining is what it has left, right after.
	Remaining int64
	// Wait is after how long the amount fits if nothing else comes: 0 if it was counted or would have fitted, below 0 if
	// it never will, because it is more than the limit.
	Wait time.Duration
	// Reset is after how long it is full again.
	Reset time.Duration
}

// OverRateError says that a rate had not enough left.
type OverRateError struct {
	Rate
	Standing
}

func (e *OverRateError) Error() string {
	return fmt.Sprintf("metered: over the rate of %s: %d asked for, %d of %d left", e.Scope, e.Amount, e.Remaining, e.Limit)
}
