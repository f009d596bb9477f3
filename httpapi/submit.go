package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/pgerr"
	"github.com/holdfast/holdfast/requests"
)

// acceptedJSON is the answer to a call that was queued.
type acceptedJSON struct {
	RequestID         uuid.UUID       `json:"request_id" format:"uuid"`
	Status            requests.Status `json:"status" enum:"queued,processing"`
	ReservationStatus string          `json:"reservation_status" enum:"queued" doc:"Nothing is held yet."`
	Lane              string          `json:"lane" enum:"hot,normal"`
	StatusURL         string          `json:"status_url" format:"uri-reference" doc:"Where to ask what came of it."`
	PollAfterMS       int             `json:"poll_after_ms" doc:"When to ask first, in milliseconds."`
}

// pollAfterMS is how long a request takes that finds its lane free: a wake and a drain.
const pollAfterMS = 50

// waitTimeout is for a call that may wait.
const waitTimeout = time.Minute

// submitProblems, submitHeaders and submitReplies document what both calls that submit have in common.
var (
	submitAnswers  = map[int]any{http.StatusOK: requestJSON{}, http.StatusAccepted: acceptedJSON{}}
	submitProblems = []kind{overLimit, overBudget, admissionRequired, admissionRefused}
	submitHeaders  = []*huma.Param{
		{
			Name: "Prefer", In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "wait=N waits up to N seconds, at most 30, for the request to finish.",
		},
		{
			Name: customerHeader, In: "header", Schema: idSchema("The customer's id."),
			Description: "Who the cart is for: in whose name the call is counted, and the subject of the admission token. The cart's id if " +
				"left out. Not looked at without `METERED_COMMANDS_ENABLED`.",
		},
		{
			Name: admissionHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
			Description: "The admission token, for a variant whose stock has the admission `token`. It is spent as the request is queued; a " +
				"repetition spends nothing more, and a quantity of no more than the cart holds needs none. Not looked at where none is required, and without `METERED_COMMANDS_ENABLED`.",
		},
	}
	submitReplies = map[string]*huma.Param{
		"Location":           {Description: "The status_url.", Schema: &huma.Schema{Type: huma.TypeString}},
		"Retry-After":        {Description: "When to ask, in whole seconds; with 202.", Schema: &huma.Schema{Type: huma.TypeInteger}},
		"Preference-Applied": {Description: "The wait that was given.", Schema: &huma.Schema{Type: huma.TypeString}},
		policyHeader: {
			Description: "How often the `tenant` and the `customer` may call, for what is limited: draft-ietf-httpapi-ratelimit-headers-10. With " +
				"202 and 200, unless for a repetition, and with the problem `over_budget`.",
			Schema: &huma.Schema{Type: huma.TypeString, Examples: []any{`"tenant";q=600;w=60, "customer";q=30;w=60`}},
		},
		limitHeader: {
			Description: "What is left of that, and in how many seconds there is more.",
			Schema:      &huma.Schema{Type: huma.TypeString, Examples: []any{`"tenant";r=599;t=1, "customer";r=29;t=2`}},
		},
		replayedHeader: {Description: "true for a repetition of an earlier call.", Schema: &huma.Schema{Type: huma.TypeString}},
	}
)

// submit admits a request for the call and answers 202, or 200 with the finished request: if it is finished already (a
// digital variant, a repetition), or becomes so while the caller prefers to wait. Once it is admitted nothing turns the
// answer into an error.
func (s *service) submit(ctx context.Context, c *call, sub requests.Submission) (answer, error) {
	sub.TenantID, sub.RequestID, sub.ActorID, sub.CorrelationID = c.who.TenantID, c.id, c.who.Prefix, c.given
	if c.key != "" {
		sub.IdempotencyKey, sub.Fingerprint = c.key, c.fingerprint()
	}
	wait := preferredWait(c.r.Header)
	sub.Waits = wait > 0
	pass, err := s.pass(c, sub.CartID)
	if err != nil {
		return answer{}, err
	}
	began := time.Now()
	admitting, cancel := context.WithTimeout(ctx, s.bounds.call)
	defer cancel()
	v, standings, err := s.intake.SubmitMetered(admitting, sub, pass)
	err = budgetError(err, pass.Rates, standings)
	if err == nil || as[*overBudgetError](err) {
		tellRates(c.w.Header(), pass.Rates, standings)
	}
	if err != nil {
		return answer{}, admissionError(c, err)
	}
	if c.given == "" {
		c.w.Header().Set(correlationHeader, v.CorrelationID) // a repetition goes by the name of the first
	}
	repeated, waited := v.RequestID != c.id, false
	switch {
	case v.Reservation != nil || v.Status == requests.Failed && !repeated:
		waited = wait > 0 // it was decided as it was admitted
	case !v.Status.Finished() && wait > 0:
		waited = true
		if later, err := s.wait(ctx, c, v.RequestID, wait-time.Since(began)); err == nil {
			v = later
		}
	case v.Status.Finished():
		// A request of this very call is finished if its variant is digital. Or a worker decided it before an admission whose
		// commit was in doubt was read back; then it may have a reservation.
		later, err := requests.Look(admitting, s.pool, v.Request)
		switch {
		case err == nil:
			v = later
		case repeated:
			return answer{}, err
		default:
			v.Status = requests.Queued // as it was accepted; what came of it can be read later
		}
	}
	a := submitted(v)
	if waited {
		a = a.with("Preference-Applied", "wait="+seconds(wait))
	}
	if repeated {
		a = a.with(replayedHeader, "true")
	}
	return a, nil
}

// submitted is the answer for a request as it is.
func submitted(v requests.View) answer {
	url := "/v1/requests/" + v.RequestID.String()
	if v.Status.Finished() {
		return respond(http.StatusOK, requestBody(v)).with("Location", url)
	}
	return respond(http.StatusAccepted, acceptedJSON{
		RequestID: v.RequestID, Status: v.Status, ReservationStatus: string(requests.Queued), Lane: v.Lane,
		StatusURL: url, PollAfterMS: pollAfterMS,
	}).with("Location", url).with("Retry-After", "1")
}

// admissionError is an error of the intake. One that leaves open whether the request was admitted is no more than an
// outage to a caller who can repeat the call under its key.
func admissionError(c *call, err error) error {
	unknown := errors.Is(err, requests.ErrOutcomeUnknown) || pgerr.IsOutage(err) && !pgerr.IsRetryable(err)
	if c.key == "" && unknown {
		return &unknownOutcomeError{err}
	}
	return err
}

// waitersMax is how many callers may wait at one time. One more is answered with how things stand.
const waitersMax = 10_000

// wait waits for the request to finish, as long as the limit says, and bounds.grace more for a slow database.
func (s *service) wait(ctx context.Context, c *call, id uuid.UUID, limit time.Duration) (requests.View, error) {
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > waitersMax {
		limit = 0
	}
	limit = max(limit, 0)
	ctx, cancel := context.WithTimeout(ctx, limit+s.bounds.grace)
	defer cancel()
	return s.watcher.Wait(ctx, c.who.TenantID, id, limit)
}
