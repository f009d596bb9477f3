package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/reservationrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/internal/tokens"
	"github.com/holdfast/holdfast/ratelimit"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/reservations"
)

// The kinds of problem.
var (
	malformed         = kind{"malformed", http.StatusBadRequest, "the body could not be read, or is not well-formed JSON in UTF-8"}
	unauthorized      = kind{"unauthorized", http.StatusUnauthorized, "a valid API key is needed: Authorization: Bearer hf_…"}
	misdirected       = kind{"misdirected", http.StatusMisdirectedRequest, "this service answers only under the names of its own machine: use localhost or 127.0.0.1 as the host"}
	ticketRefused     = kind{"unauthorized", http.StatusUnauthorized, "a live connection needs a ticket that was not used, within a minute: POST /v1/live/tickets"}
	forbidden         = kind{"forbidden", http.StatusForbidden, "the API key lacks the scope for this request"}
	admissionRequired = kind{"admission_required", http.StatusForbidden, "the variant requires an admission token, in the header Admission-Token"}
	admissionRefused  = kind{"admission_refused", http.StatusForbidden, "the admission token is not valid: it is good once, until it expires, for its customer and its variant"}
	originRefused     = kind{"origin_refused", http.StatusForbidden, "pages of this origin may not connect: add it to LIVE_ORIGINS"}
	notFound          = kind{"not_found", http.StatusNotFound, "the tenant has no such resource"}
	noRoute           = kind{"not_found", http.StatusNotFound, "there is no such path"}
	methodNotAllowed  = kind{"method_not_allowed", http.StatusMethodNotAllowed, "the path does not have this method, see Allow"}
	belowReserved     = kind{"below_reserved", http.StatusConflict, "the variant would have fewer units than are reserved"}
	tooFewFree        = kind{"out_of_stock", http.StatusConflict, "not so many units are free"}
	returnExceeds     = kind{"return_exceeds", http.StatusConflict, "not so many units of the reservation are committed, or not the named ones"}
	limitExceeded     = kind{"limit_exceeded", http.StatusConflict, "the cart or the customer would have more units than allowed"}
	requestsPending   = kind{"requests_pending", http.StatusConflict, "the cart has requests that are not decided yet"}
	cartEmpty         = kind{"cart_empty", http.StatusConflict, "the cart holds nothing"}
	holdExpired       = kind{"hold_expired", http.StatusConflict, "a hold of the cart has expired: remove the item or add it again"}
	lifetimeExceeded  = kind{"lifetime_exceeded", http.StatusConflict, "the hold would exceed the maximum lifetime of holds"}
	conflictingState  = kind{"conflicting_state", http.StatusConflict, "the reservation, the checkout or the request is not in the status that the request needs"}
	checkoutRunning   = kind{"checkout_in_progress", http.StatusConflict, "a checkout of the cart is in progress: its holds are locked to it until it ends"}
	partOfKit         = kind{"part_of_kit", http.StatusConflict, "the units are held for a kit: remove the kit"}
	notABlock         = kind{"not_a_block", http.StatusConflict, "the id is that of a variant whose units are counted: its units have no ids"}
	tooLarge          = kind{"too_large", http.StatusRequestEntityTooLarge, "the body is larger than the limit of this operation"}
	unsupportedMedia  = kind{"unsupported_media_type", http.StatusUnsupportedMediaType, "the body has a media type or an encoding that this operation does not accept"}
	malformedUpgrade  = kind{"malformed", http.StatusBadRequest, "the upgrade to a WebSocket is not valid"}
	upgradeRequired   = kind{"upgrade_required", http.StatusUpgradeRequired, "this path is for WebSockets of version 13"}
	invalid           = kind{"invalid", http.StatusUnprocessableEntity, "the request has fields that are not valid"}
	keyReused         = kind{"idempotency_key_reused", http.StatusUnprocessableEntity, "the idempotency key was used for a request with another method, path or body"}
	overLimit         = kind{"over_limit", http.StatusTooManyRequests, "the tenant has too much waiting already: nothing was written"}
	liveLimit         = kind{"over_limit", http.StatusTooManyRequests, "the tenant has too many live connections, or the key or the tenant too many unused tickets"}
	overBudget        = kind{"over_budget", http.StatusTooManyRequests, "the tenant or the customer has exceeded its rate limit: nothing was queued or counted"}
	internalError     = kind{"internal", http.StatusInternalServerError, "an internal error"}
	overloaded        = kind{"overloaded", http.StatusServiceUnavailable, "the service is overloaded, or the database does not respond: nothing was done that a retry would repeat"}
	cellUnavailable   = kind{"cell_unavailable", http.StatusServiceUnavailable, "the database of the tenant does not respond: nothing was done"}
	tenantMoving      = kind{"tenant_moving", http.StatusServiceUnavailable, "the tenant moves to another database: nothing was done, and a retry is served in a moment"}
	outcomeUnknown    = kind{"outcome_unknown", http.StatusServiceUnavailable, "it is not known whether the request took effect: check before sending it again, and send an Idempotency-Key next time"}
	notReady          = kind{"not_ready", http.StatusServiceUnavailable, "the database does not respond, is not migrated, or has a sequence behind its rows"}
)

// Errors of this package only.
var (
	errMalformed   = errors.New("malformed body")
	errMediaType   = errors.New("unsupported media type")
	errNoRoute     = errors.New("no such path")
	errMethod      = errors.New("no such method")
	errUnauthentic = errors.New("no usable API key")
)

// rules map errors to kinds of problem. The first rule that matches counts.
var rules = []struct {
	matches func(error) bool
	kind    kind
}{
	{is(live.ErrTicketRefused), ticketRefused},
	{is(live.ErrTooManyTickets), liveLimit},
	{is(live.ErrTenantConnections), liveLimit},
	{is(live.ErrTooManySubscriptions), liveLimit},
	{is(live.ErrConnections), overloaded},
	{is(live.ErrStopped), overloaded},
	{is(errNoUpgrade), upgradeRequired},
	{is(errBadUpgrade), malformedUpgrade},
	{is(errOrigin), originRefused},
	{is(errUnauthentic), unauthorized},
	{is(tenants.ErrUnknownKey), unauthorized},
	{isMoving, tenantMoving},
	{as[*cellError], cellUnavailable},
	{as[*scopeError], forbidden},
	{is(errNoRoute), noRoute},
	{is(errNoHistory), notFound},
	{is(errMethod), methodNotAllowed},
	{as[*http.MaxBytesError], tooLarge},
	{is(errMediaType), unsupportedMedia},
	{is(errMalformed), malformed},
	{is(errStopping), overloaded},
	{as[fieldErrors], invalid},
	{as[*inventory.InvalidError], invalid}, // those of the other packages are or wrap this type
	{is(inventory.ErrStockRequired), invalid},
	{is(holdfast.ErrKeyReused), keyReused},
	{is(holdfast.ErrNotFound), notFound},
	{as[*requestrows.NotFailedError], conflictingState},
	{as[*requestrows.RetriedError], conflictingState},
	{is(requestrows.ErrRetryCancelled), conflictingState},
	{is(requestrows.ErrRetrySuperseded), conflictingState},
	{is(inventory.ErrUnknownVariant), notFound},
	{is(inventory.ErrUnknownUnit), notFound},
	{is(inventory.ErrUnknownKit), notFound},
	{is(inventory.ErrUnknownGroup), notFound},
	{is(inventory.ErrUnknownAllotment), notFound},
	{is(inventory.ErrPartOfKit), partOfKit},
	{is(inventory.ErrCounted), notABlock},
	{is(lanes.ErrUnknown), notFound},
	{is(inventory.ErrBelowReserved), belowReserved},
	{is(inventory.ErrOutOfStock), tooFewFree},
	{is(inventory.ErrReturnExceeds), returnExceeds},
	{is(inventory.ErrLimitExceeded), limitExceeded},
	{is(requestrows.ErrRequestsPending), requestsPending},
	{is(inventory.ErrHoldExpired), holdExpired}, // before the conflict that it may wrap
	{is(inventory.ErrCartEmpty), cartEmpty},
	{is(reservationrows.ErrCheckoutInProgress), checkoutRunning},
	{is(reservations.ErrLifetimeExceeded), lifetimeExceeded},
	{as[*reservations.ConflictError], conflictingState},
	{as[*checkouts.ConflictError], conflictingState},
	{is(admission.ErrOverLimit), overLimit},
	{is(admission.ErrTokenRequired), admissionRequired},
	{as[tokens.RefusedError], admissionRefused}, // the response does not contain the reason
	{as[*ratelimit.ExceededError], overBudget},
	{is(errNotReady), notReady},
	{as[*repeatableError], overloaded},
	{is(holdfast.ErrOutcomeUnknown), outcomeUnknown},
	{is(admission.ErrOverloaded), overloaded},
	{is(checkouts.ErrBusy), overloaded},
	{is(context.Canceled), overloaded}, // the caller disconnected, or the program stops
	{pg.IsRetryable, overloaded},
	{pg.IsOutage, overloaded},
}

// isMoving reports whether the tenant is active elsewhere, or its fence has refused
// a row.
func isMoving(err error) bool {
	return errors.Is(err, tenants.ErrElsewhere) || pg.Code(err) == tenants.FenceCode
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// problemOf returns the problem of an error. An error that is not in rules is
// internalError, and the problem contains nothing of it.
func problemOf(err error) *problem {
	k := internalError
	for _, rule := range rules {
		if rule.matches(err) {
			k = rule.kind
			break
		}
	}
	p := k.problem()
	p.addDetails(err)
	return p
}

// addDetails adds the details of the error to the problem of its kind.
func (p *problem) addDetails(err error) {
	if wrong, ok := errors.AsType[fieldErrors](err); ok {
		p.Errors = wrong
	}
	if wrong, ok := errors.AsType[*inventory.InvalidError](err); ok {
		p.Errors = fieldErrors{}.with(wrong.Field, wrong.Message)
	}
	if body, ok := errors.AsType[*bodyError](err); ok && body.isLate() && p.Code == malformed.code {
		p.Detail = "the body did not arrive in time"
	}
	if over, ok := errors.AsType[*overBudgetError](err); ok {
		p.Violated = over.policies
		p.header.Set("Retry-After", strconv.FormatInt(max(wholeSeconds(over.wait), 1), 10))
	}
	if refused, ok := errors.AsType[*admission.RefusedError](err); ok {
		p.header.Set("Retry-After", seconds(refused.RetryAfter))
	}
	if errors.Is(err, inventory.ErrStockRequired) {
		p.Errors = fieldErrors{}.with("stock", "is required for a new variant that is tracked")
	}
	if lacking, ok := errors.AsType[*scopeError](err); ok {
		p.Scope = string(lacking.scopes[0])
		p.Detail = "the API " + strings.TrimPrefix(lacking.Error(), "the ")
		p.header.Set("WWW-Authenticate", `Bearer realm="holdfast", error="insufficient_scope", scope="`+p.Scope+`"`)
	}
	if errors.Is(err, tenants.ErrUnknownKey) {
		p.header.Set("WWW-Authenticate", `Bearer realm="holdfast", error="invalid_token"`)
	}
	if conflict, ok := errors.AsType[*reservations.ConflictError](err); ok && p.Code == conflictingState.code {
		p.Expected, p.Actual = string(conflict.Expected), string(conflict.Actual)
	}
	if conflict, ok := errors.AsType[*checkouts.ConflictError](err); ok {
		p.Expected, p.Actual = string(checkouts.Validating), string(conflict.Status)
	}
	if unfailed, ok := errors.AsType[*requestrows.NotFailedError](err); ok {
		p.Expected, p.Actual = string(requests.Failed), string(unfailed.Status)
	}
	switch {
	case errors.Is(err, requestrows.ErrRetryCancelled):
		p.Detail = "the buyer cancelled the request"
	case errors.Is(err, requestrows.ErrRetrySuperseded):
		p.Detail = "the cart has a later request for the same variant, which the retry would undo"
	}
	if retried, ok := errors.AsType[*requestrows.RetriedError](err); ok {
		p.Detail, p.RetriedBy = "another request retries this one already", &retried.RetriedBy
	}
	if early, ok := errors.AsType[*importError](err); ok {
		p.Report, p.UnitsReport = early.report, early.units
	}
}
