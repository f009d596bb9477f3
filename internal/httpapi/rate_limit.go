package httpapi

import (
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/ratelimit"
)

// policyOf returns a rate's name in the RateLimit fields: its scope, without what
// follows a colon.
func policyOf(r ratelimit.Rate) string {
	name, _, _ := strings.Cut(r.Scope, ":")
	return name
}

// The fields of draft-ietf-httpapi-ratelimit-headers-10: lists of strings with
// parameters (RFC 9651). q is a policy's limit and w its window; r is what is
// left of it and t in how many seconds there will be more.
const (
	policyHeader = "RateLimit-Policy"
	limitHeader  = "RateLimit"
)

// setRateLimitHeaders adds the rates and their states to the header. For a
// repetition there are no states, and it adds nothing.
func setRateLimitHeaders(h http.Header, rates []ratelimit.Rate, states []ratelimit.State) {
	if len(states) == 0 {
		return
	}
	policies, limits := make([]string, len(states)), make([]string, 0, len(states))
	for i, state := range states {
		r := rates[i]
		policies[i] = fmt.Sprintf("%q;q=%d;w=%d", policyOf(r), r.Limit, wholeSeconds(r.Window))
		if state != admission.UnknownState {
			limits = append(limits, fmt.Sprintf("%q;r=%d;t=%d", policyOf(r), state.Remaining, wholeSeconds(untilMore(r, state))))
		}
	}
	h.Set(policyHeader, strings.Join(policies, ", "))
	h.Set(limitHeader, strings.Join(limits, ", "))
}

// wholeSeconds is d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 { return int64((max(d, 0) + time.Second - 1) / time.Second) }

// untilMore returns after how long more remains of the rate than now, 0 if
// nothing is missing. Capacity returns evenly, so all but one of the missing
// units take their part of the time until none is missing. For a rate that
// rejected the request it is the wait.
func untilMore(r ratelimit.Rate, state ratelimit.State) time.Duration {
	missing := r.Limit - state.Remaining
	switch {
	case state.Wait > 0:
		return state.Wait
	case missing <= 0:
		return 0
	}
	high, low := bits.Mul64(uint64(missing-1), uint64(r.Window))
	others, _ := bits.Div64(high, low, uint64(r.Limit)) // high < Limit, because fewer are missing and a window is less than 2⁶⁴
	return max(state.Reset-time.Duration(others), 1)
}

// overBudgetError has the names of the rates that rejected a request, and the
// time after which none of them would.
type overBudgetError struct {
	policies []string
	wait     time.Duration
	cause    error
}

func (e *overBudgetError) Error() string { return e.cause.Error() }

func (e *overBudgetError) Unwrap() error { return e.cause }

// budgetError returns err. If rates rejected the request, it is an
// *overBudgetError made from their states.
func budgetError(err error, rates []ratelimit.Rate, states []ratelimit.State) error {
	if _, ok := errors.AsType[*ratelimit.ExceededError](err); !ok {
		return err
	}
	over := &overBudgetError{cause: err}
	for i, state := range states {
		if state.Wait != 0 {
			over.policies = append(over.policies, policyOf(rates[i]))
			over.wait = max(over.wait, state.Wait)
		}
	}
	return over
}
