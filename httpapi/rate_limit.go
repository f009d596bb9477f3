package httpapi

import (
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/requests"
)

// The rates' names in the RateLimit fields. A rate's scope is its name, or begins with it and a colon.
const (
	policyTenant   = "tenant"
	policyCustomer = "customer"
)

func policyOf(r metered.Rate) string {
	name, _, _ := strings.Cut(r.Scope, ":")
	return name
}

// The fields of draft-ietf-httpapi-ratelimit-headers-10: lists of strings with parameters (RFC 9651). q is a policy's
// limit and w its window; r is what is left of it and t in how many seconds there will be more.
const (
	policyHeader = "RateLimit-Policy"
	limitHeader  = "RateLimit"
)

// tellRates says in the answer's header how the rates stand. Without standings, those of a repetition, it says nothing.
func tellRates(h http.Header, rates []metered.Rate, standings []metered.Standing) {
	if len(standings) == 0 {
		return
	}
	policies, limits := make([]string, len(standings)), make([]string, 0, len(standings))
	for i, stands := range standings {
		r := rates[i]
		policies[i] = fmt.Sprintf("%q;q=%d;w=%d", policyOf(r), r.Limit, wholeSeconds(r.Window))
		if stands != requests.Unasked {
			limits = append(limits, fmt.Sprintf("%q;r=%d;t=%d", policyOf(r), stands.Remaining, wholeSeconds(untilMore(r, stands))))
		}
	}
	h.Set(policyHeader, strings.Join(policies, ", "))
	h.Set(limitHeader, strings.Join(limits, ", "))
}

// wholeSeconds is d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 { return int64((max(d, 0) + time.Second - 1) / time.Second) }

// untilMore is after how long more is left of the rate than now: 0 if all is. It is filled evenly, so all but one of
// what is missing take their part of the time until it is full. Of a rate that refused it is the wait itself.
func untilMore(r metered.Rate, stands metered.Standing) time.Duration {
	missing := r.Limit - stands.Remaining
	switch {
	case stands.Wait > 0:
		return stands.Wait
	case missing <= 0:
		return 0
	}
	high, low := bits.Mul64(uint64(missing-1), uint64(r.Window))
	others, _ := bits.Div64(high, low, uint64(r.Limit)) // high < Limit, because fewer are missing and a window is less than 2⁶⁴
	return max(stands.Reset-time.Duration(others), 1)
}

// overBudgetError says which rates had not enough left, by their names, and when all of them will have.
type overBudgetError struct {
	policies []string
	wait     time.Duration
	cause    error
}

func (e *overBudgetError) Error() string { return e.cause.Error() }

func (e *overBudgetError) Unwrap() error { return e.cause }

// budgetError is err, with what the standings say if it is a rate's.
func budgetError(err error, rates []metered.Rate, standings []metered.Standing) error {
	if _, ok := errors.AsType[*metered.OverRateError](err); !ok {
		return err
	}
	over := &overBudgetError{cause: err}
	for i, stands := range standings {
		if stands.Wait != 0 {
			over.policies = append(over.policies, policyOf(rates[i]))
			over.wait = max(over.wait, stands.Wait)
		}
	}
	return over
}
