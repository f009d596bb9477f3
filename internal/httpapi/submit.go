package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
)

// acceptedJSON is the response to a request that was queued.
type acceptedJSON struct {
	RequestID         uuid.UUID       `json:"request_id" format:"uuid"`
	Status            requests.Status `json:"status" enum:"queued,processing"`
	ReservationStatus string          `json:"reservation_status" enum:"queued" doc:"Nothing is held yet."`
	Lane              laneName        `json:"lane"`
	UnitsAsked
	RetryOf     *uuid.UUID `json:"retry_of,omitempty" format:"uuid" doc:"The failed request that it retries; left out of other requests."`
	StatusURL   string     `json:"status_url" format:"uri-reference" doc:"Where to read the request and its outcome."`
	PollAfterMS int        `json:"poll_after_ms" doc:"When to read it first, in milliseconds."`
}

// pollAfterMS is how long a request takes in an idle lane: a wake and a drain.
const pollAfterMS = 50

// What the endpoints that queue a request document in common.
var (
	submitResponses      = map[int]any{http.StatusOK: requestJSON{}, http.StatusAccepted: acceptedJSON{}}
	submitProblems       = []kind{overLimit, overBudget, admissionRequired, admissionRefused}
	submitRequestHeaders = []*huma.Param{
		{
			Name: "Prefer", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "wait=N waits up to N seconds, at most " + seconds(waitMax) + ", for the request to finish.",
		},
		{
			Name: customerHeader, In: "header", Schema: idSchema("The customer's id."),
			Description: "The customer whose rate counts the request, and the subject of the admission token. The cart's id if left out. " +
				"Ignored without `METERED_COMMANDS_ENABLED`.",
		},
		{
			Name: admissionHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "The admission token, for a variant whose stock has the admission `token`. It is spent when the request is queued. A " +
				"repetition spends nothing, and a quantity of no more than the cart holds needs no token. Ignored for other variants, and without `METERED_COMMANDS_ENABLED`.",
		},
	}
	submitResponseHeaders = map[string]*huma.Param{
		"Location":           {Description: "The status_url.", Schema: &huma.Schema{Type: huma.TypeString}},
		"Retry-After":        {Description: "When to read the request, in whole seconds; with 202.", Schema: &huma.Schema{Type: huma.TypeInteger}},
		"Preference-Applied": {Description: "The wait that was applied.", Schema: &huma.Schema{Type: huma.TypeString}},
		policyHeader: {
			Description: "The rate limits of the `tenant` and the `customer`, as far as they have one: draft-ietf-httpapi-ratelimit-headers-10. " +
				"With 202 and 200, except for a repetition, and with the problem `over_budget`.",
			Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{`"tenant";q=600;w=60, "customer";q=30;w=60`}},
		},
		limitHeader: {
			Description: "What remains of these limits, and after how many seconds more is available.",
			Schema:      &huma.Schema{Type: huma.TypeString, Examples: []any{`"tenant";r=599;t=1, "customer";r=29;t=2`}},
		},
		replayedHeader: {Description: "true for a repetition of an earlier request.", Schema: &huma.Schema{Type: huma.TypeString}},
	}
)

// submitEndpoint completes an endpoint that queues a request.
func submitEndpoint[P, B any](e endpoint[P, B]) endpoint[P, B] {
	e.tag = tagCarts
	e.scope = tenants.ScopeCart
	e.responses = submitResponses
	e.problems = submitProblems
	e.requestHeaders = submitRequestHeaders
	e.responseHeaders = submitResponseHeaders
	e.timeout = ownBounds
	return e
}

// submit admits a request for units and responds 202. sub has what the path and
// the body ask for; submit adds the rest. It responds 200 with the finished
// request if that is finished already (a digital variant, a repetition), or
// finishes while the caller prefers to wait. Once the request is admitted,
// nothing makes the response an error.
func (s *service) submit(ctx context.Context, req *request, sub requestrows.Submission) (response, error) {
	wait := preferredWait(req.http.Header)
	sub.TenantID, sub.RequestID = req.principal.TenantID, req.id
	sub.ActorID, sub.CorrelationID = req.principal.Prefix, req.givenCorrelationID
	sub.Waits = wait > 0
	if req.key != "" {
		sub.IdempotencyKey = req.key
		sub.Fingerprint = req.fingerprint()
	}
	var credentials admission.Credentials // none for a retry: the failed request was counted
	if sub.RetryOf == uuid.Nil {
		var err error
		credentials, err = s.credentials(req, sub.CartID)
		if err != nil {
			return response{}, err
		}
	}
	began := time.Now()
	admitting, cancel := context.WithTimeout(ctx, s.bounds.request)
	defer cancel()
	v, states, err := s.intake.SubmitMetered(admitting, sub, credentials)
	err = budgetError(err, credentials.Rates, states)
	if err == nil || as[*overBudgetError](err) {
		setRateLimitHeaders(req.w.Header(), credentials.Rates, states)
	}
	if err != nil {
		return response{}, admissionError(req, err)
	}
	if req.givenCorrelationID == "" {
		req.w.Header().Set(correlationHeader, v.CorrelationID) // a repetition has the correlation id of the first
	}
	repeated := v.RequestID != req.id
	waited := false
	switch {
	case v.Reservation != nil || v.Status == requests.Failed && !repeated:
		waited = wait > 0 // it was decided when it was admitted
	case !v.Status.Finished() && wait > 0:
		waited = true
		if later, err := s.wait(ctx, req, v.RequestID, wait-time.Since(began)); err == nil {
			v = later
		}
	case v.Status.Finished():
		// A request that was made here is finished if its variant is digital.
		// Or a worker decided it before an admission whose COMMIT was in doubt
		// was read back; then it may have a reservation.
		later, err := requestrows.ReadView(admitting, s.pool, v.Request)
		switch {
		case err == nil:
			v = later
		case repeated:
			return response{}, err
		default:
			v.Status = requests.Queued // as it was accepted; the caller can read its outcome later
		}
	}
	resp := submitted(v)
	if waited {
		resp = resp.with("Preference-Applied", "wait="+seconds(wait))
	}
	if repeated {
		resp = resp.with(replayedHeader, "true")
	}
	return resp, nil
}

// submitted returns the response for the request in its present state.
func submitted(v requests.View) response {
	url := "/v1/requests/" + v.RequestID.String()
	if v.Status.Finished() {
		return jsonResponse(http.StatusOK, requestBody(v)).with("Location", url)
	}
	return jsonResponse(http.StatusAccepted, acceptedJSON{
		RequestID: v.RequestID, Status: v.Status, ReservationStatus: string(requests.Queued), Lane: laneName(v.Lane), UnitsAsked: unitsOfRequest(&v.Request),
		RetryOf: v.RetryOf, StatusURL: url, PollAfterMS: pollAfterMS,
	}).with("Location", url).with("Retry-After", "1")
}

// admissionError returns the error that the caller gets for an error of the
// intake. If it is not known whether the request was admitted, a caller with an
// idempotency key can repeat it, so the error counts as an outage. Without a
// key it is an *unknownOutcomeError.
func admissionError(req *request, err error) error {
	unknown := errors.Is(err, admission.ErrOutcomeUnknown) || pg.IsOutage(err) && !pg.IsRetryable(err)
	if req.key == "" && unknown {
		return &unknownOutcomeError{err}
	}
	return err
}
