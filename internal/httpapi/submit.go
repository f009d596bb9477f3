package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
)

// acceptedJSON is the response to a request that was queued.
type acceptedJSON struct {
	RequestID         uuid.UUID       `json:"request_id" format:"uuid"`
	Status            requests.Status `json:"status" enum:"queued,processing,waiting"`
	ReservationStatus string          `json:"reservation_status" enum:"queued,waiting" doc:"Nothing is held yet."`
	Position          *int64          `json:"position,omitempty" doc:"The place in line of a waiting request, from 1; left out of others."`
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
			Description: "wait=N waits up to N seconds, at most " + seconds(waitMax) + ", for the request to be decided.",
		},
		{
			Name: customerHeader, In: "header", Schema: idSchema("The customer's id."),
			Description: "The customer to whom max_per_customer applies, and with `METERED_COMMANDS_ENABLED` the rate, and the subject of the " +
				"admission token. The cart's id if left out.",
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
		policyHeader:         headerRef(policyHeader),
		limitHeader:          headerRef(limitHeader),
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

// submit makes a call that requests units, and responds 202, or 200 with the
// finished request if it is finished already (a digital variant, a repetition),
// or finishes while the caller prefers to wait. The rates of the cart's customer
// count it, unless cart is "".
func (s *service) submit(req *request, cart string, call func(*holdfast.CallOpts) (holdfast.Outcome, error)) (response, error) {
	opts := req.opts()
	opts.Wait = preferredWait(req.http.Header)
	if cart != "" {
		if err := s.credentials(req, opts); err != nil {
			return response{}, err
		}
	}
	v, err := call(opts)
	err = budgetError(err, opts.Info.Rates, opts.Info.States)
	if err == nil || as[*overBudgetError](err) {
		setRateLimitHeaders(req.w.Header(), opts.Info.Rates, opts.Info.States)
	}
	if err != nil {
		return response{}, err
	}
	if req.givenCorrelationID == "" {
		req.w.Header().Set(correlationHeader, v.CorrelationID) // a repetition has the correlation id of the first
	}
	resp := submitted(v)
	if opts.Info.Waited {
		resp = resp.with("Preference-Applied", "wait="+seconds(opts.Wait))
	}
	if opts.Info.Replayed {
		resp = resp.with(replayedHeader, "true")
	}
	return resp, nil
}

// submitted returns the response for the request in its present state.
func submitted(v holdfast.Outcome) response {
	url := "/v1/requests/" + v.RequestID.String()
	if v.Status.Finished() {
		return jsonResponse(http.StatusOK, requestBody(v)).with("Location", url)
	}
	held, position := requests.Queued, (*int64)(nil)
	if v.Status == requests.Waiting {
		held, position = requests.Waiting, v.Position
	}
	return jsonResponse(http.StatusAccepted, acceptedJSON{
		RequestID: v.RequestID, Status: v.Status, ReservationStatus: string(held), Position: position, Lane: laneName(v.Lane), UnitsAsked: unitsOfRequest(&v.Request),
		RetryOf: v.RetryOf, StatusURL: url, PollAfterMS: pollAfterMS,
	}).with("Location", url).with("Retry-After", "1")
}
