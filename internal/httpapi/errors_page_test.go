package httpapi

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// TestDocumentedCodes compares the statuses and codes of docs/errors.md with
// the problems of the errors.
func TestDocumentedCodes(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	type response struct {
		status int
		code   string
	}
	documented := map[string]response{} // the first row of a name counts: that of the door
	for _, row := range regexp.MustCompile("(?m)^\\| `([*\\w]+)`.* \\| (\\d{3}) `(\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
		if _, known := documented[row[1]]; known {
			continue
		}
		status, err := strconv.Atoi(row[2])
		if err != nil {
			t.Fatal(err)
		}
		documented[row[1]] = response{status, row[3]}
	}
	for name, err := range map[string]error{
		"*InvalidError":         &holdfast.InvalidError{},
		"ErrOverloaded":         holdfast.ErrOverloaded,
		"ErrOverLimit":          holdfast.ErrOverLimit,
		"ErrOutcomeUnknown":     holdfast.ErrOutcomeUnknown,
		"ErrTenantMoving":       holdfast.ErrTenantMoving,
		"ErrTokenRequired":      holdfast.ErrTokenRequired,
		"ErrUnknownVariant":     holdfast.ErrUnknownVariant,
		"ErrBelowReserved":      holdfast.ErrBelowReserved,
		"ErrRequestsPending":    holdfast.ErrRequestsPending,
		"ErrCartEmpty":          holdfast.ErrCartEmpty,
		"ErrHoldExpired":        holdfast.ErrHoldExpired,
		"ErrCheckoutInProgress": holdfast.ErrCheckoutInProgress,
		"ErrLifetimeExceeded":   holdfast.ErrLifetimeExceeded,
		"*ConflictError":        &holdfast.ConflictError{},
		"*PaymentConflictError": &holdfast.PaymentConflictError{},
		"ErrTokenRefused":       &metered.Error{Kind: metered.ErrTokenRefused, Reason: "used"},
		"*ExceededError":        &ratelimit.ExceededError{},
	} {
		p := problemOf(err)
		if got := (response{p.Status, p.Code}); got != documented[name] {
			t.Errorf("docs/errors.md has %v for %s, and the response %v", documented[name], name, got)
		}
	}
}
