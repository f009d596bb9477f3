package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/inventory"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
	"github.com/holdfast/holdfast/tenants"
)

// The kinds of problem there are.
var (
	malformed         = kind{"malformed", http.StatusBadRequest, "the body can't be read, or is not well-formed JSON in UTF-8"}
	unauthorized      = kind{"unauthorized", http.StatusUnauthorized, "a valid API key is needed: Authorization: Bearer hf_…"}
	forbidden         = kind{"forbidden", http.StatusForbidden, "the API key lacks the scope for this call"}
	admissionRequired = kind{"admission_required", http.StatusForbidden, "the variant requires an admission token, in the header Admission-Token"}
	admissionRefused  = kind{"admission_refused", http.StatusForbidden, "the admission token is not valid: it is good once, until it expires, for its customer and its variant"}
	notFound          = kind{"not_found", http.StatusNotFound, "the tenant has nothing of that name"}
	noRoute           = kind{"not_found", http.StatusNotFound, "there is no such path"}
	methodNotAllowed  = kind{"method_not_allowed", http.StatusMethodNotAllowed, "the path does not have this method, see Allow"}
	belowReserved     = kind{"below_reserved", http.StatusConflict, "the variant would have fewer units than are reserved"}
	requestsPending   = kind{"requests_pending", http.StatusConflict, "the cart has requests that are not decided yet"}
	cartEmpty         = kind{"cart_empty", http.StatusConflict, "the cart holds nothing"}
	holdExpired       = kind{"hold_expired", http.StatusConflict, "a hold of the cart has expired: remove the item or add it again"}
	lifetimeExceeded  = kind{"lifetime_exceeded", http.StatusConflict, "the hold would last longer than holds may last in all"}
	conflictingState  = kind{"conflicting_state", http.StatusConflict, "the reservation is not in the status that the call needs"}
	tooLarge          = kind{"too_large", http.StatusRequestEntityTooLarge, "the body is larger than this call takes"}
	unsupportedMedia  = kind{"unsupported_media_type", http.StatusUnsupportedMediaType, "the body has a media type or an encoding that this call does not take"}
	invalid           = kind{"invalid", http.StatusUnprocessableEntity, "the call has fields that are not valid"}
	keyReused         = kind{"idempotency_key_reused", http.StatusUnprocessableEntity, "the idempotency key was used for a call with another method, path or body"}
	overLimit         = kind{"over_limit", http.StatusTooManyRequests, "too much of the tenant's is waiting already: nothing was written"}
	overBudget        = kind{"over_budget", http.StatusTooManyRequests, "the tenant or the customer calls more often than it may: nothing was queued or counted"}
	internalError     = kind{"internal", http.StatusInternalServerError, "something went wrong here"}
	overloaded        = kind{"overloaded", http.StatusServiceUnavailable, "too much to do, or the database does not answer: nothing was done that a retry would repeat"}
	outcomeUnknown    = kind{"outcome_unknown", http.StatusServiceUnavailable, "it is not known whether the call took effect: look before sending it again, and send an Idempotency-Key next time"}
	notReady          = kind{"not_ready", http.StatusServiceUnavailable, "the database does not answer or is not migrated"}
)

// Outcomes that only this package has.
var (
	errMalformed   = errors.New("malformed body")
	errMediaType   = errors.New("unsupported media type")
	errNoRoute     = errors.New("no such path")
	errMethod      = errors.New("no such method")
	errUnauthentic = errors.New("no usable API key")
)

// rules say what kind of problem an error is; the first that matches counts.
var rules = []struct {
	matches func(error) bool
	kind    kind
}{
	{is(errUnauthentic), unauthorized},
	{is(tenants.ErrUnknownKey), unauthorized},
	{as[*scopeError], forbidden},
	{is(errNoRoute), noRoute},
	{is(errMethod), methodNotAllowed},
	{as[*http.MaxBytesError], tooLarge},
	{is(errMediaType), unsupportedMedia},
	{is(errMalformed), malformed},
	{is(errStopping), overloaded},
	{as[faults], invalid},
	{as[*inventory.InvalidError], invalid},
	{as[*tenants.InvalidError], invalid},
	{as[*metered.InvalidError], invalid},
	{is(inventory.ErrStockRequired), invalid},
	{is(tenants.ErrKeyReused), keyReused},
	{is(requests.ErrKeyReused), keyReused},
	{is(requests.ErrNotFound), notFound},
	{is(reservations.ErrNotFound), notFound},
	{is(inventory.ErrUnknownVariant), notFound},
	{is(queues.ErrUnknownLane), notFound},
	{is(inventory.ErrBelowReserved), belowReserved},
	{is(requests.ErrRequestsPending), requestsPending},
	{is(inventory.ErrHoldExpired), holdExpired}, // ahead of the conflict that it may carry
	{is(inventory.ErrCartEmpty), cartEmpty},
	{is(reservations.ErrLifetimeExceeded), lifetimeExceeded},
	{as[*reservations.ConflictError], conflictingState},
	{is(requests.ErrOverLimit), overLimit},
	{is(requests.ErrTokenRequired), admissionRequired},
	{is(metered.ErrTokenRefused), admissionRefused}, // for every reason: none is told
	{as[*metered.OverRateError], overBudget},
	{is(errNotReady), notReady},
	{as[*unknownOutcomeError], outcomeUnknown},
	{is(requests.ErrOverloaded), overloaded},
	{is(context.Canceled), overloaded}, // the caller went away, or the program stops
	{pgerr.IsRetryable, overloaded},
	{pgerr.IsOutage, overloaded},
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// problemOf is the problem that an error is answered with. It shows the caller nothing of an error that is not listed.
func problemOf(err error) *problem {
	k := internalError
	for _, rule := range rules {
		if rule.matches(err) {
			k = rule.kind
			break
		}
	}
	p := k.problem()
	p.specify(err)
	return p
}

// specify adds what the error says beyond its kind.
func (p *problem) specify(err error) {
	if wrong, ok := errors.AsType[faults](err); ok {
		p.Errors = wrong
	}
	if wrong, ok := errors.AsType[*inventory.InvalidError](err); ok {
		p.Errors = faults{}.with(wrong.Field, wrong.Message)
	}
	if wrong, ok := errors.AsType[*tenants.InvalidError](err); ok {
		p.Errors = faults{}.with(wrong.Field, wrong.Message)
	}
	if wrong, ok := errors.AsType[*metered.InvalidError](err); ok {
		p.Errors = faults{}.with(wrong.Field, wrong.Message)
	}
	if body, ok := errors.AsType[*bodyError](err); ok && body.isLate() && p.Code == malformed.code {
		p.Detail = "the body did not arrive in time"
	}
	if over, ok := errors.AsType[*overBudgetError](err); ok {
		p.Violated = over.policies
		p.header.Set("Retry-After", strconv.FormatInt(max(wholeSeconds(over.wait), 1), 10))
	}
	if refused, ok := errors.AsType[*requests.RefusedError](err); ok {
		p.header.Set("Retry-After", seconds(refused.RetryAfter))
	}
	if errors.Is(err, inventory.ErrStockRequired) {
		p.Errors = faults{}.with("stock", "is required for a new variant that is tracked")
	}
	if lacking, ok := errors.AsType[*scopeError](err); ok {
		p.Scope = string(lacking.scope)
		p.Detail = "the API key lacks the scope " + p.Scope
		p.header.Set("WWW-Authenticate", `Bearer realm="holdfast", error="insufficient_scope", scope="`+p.Scope+`"`)
	}
	if errors.Is(err, tenants.ErrUnknownKey) {
		p.header.Set("WWW-Authenticate", `Bearer realm="holdfast", error="invalid_token"`)
	}
	if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok && p.Code == conflictingState.code {
		p.Expected, p.Actual = conflict.Expected, conflict.Actual
	}
	if early, ok := errors.AsType[*importError](err); ok {
		p.Report = &early.report
	}
}
