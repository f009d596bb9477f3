package httpapi

import (
	"context"
	"maps"
	"net/http"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/tenants"
)

type retryParams struct {
	RequestID uuid.UUID `path:"request_id" format:"uuid"`
}

func (s *service) retryRequest() endpoint[retryParams, emptyBody] {
	e := submitEndpoint(endpoint[retryParams, emptyBody]{
		id: "retry-request", method: http.MethodPost, path: "/v1/requests/{request_id}/retry",
		summary: "Retry a failed request",
		doc: "Queues a new request for the same cart and the same units, as adding does, in the name of the key that retries it. Its retry_of is " +
			"the failed request, which stays as it is. A request is retried once: if the retry fails, retry that one. A retry does not undo what " +
			"the buyer decided later: a cancelled request is not retried, and neither is one of kind set if the cart has a later request for the " +
			"variant. A retry is not counted in rates and needs no admission token.",
		handle: func(ctx context.Context, req *request, p *retryParams, _ *emptyBody) (response, error) {
			reading, cancel := context.WithTimeout(ctx, s.bounds.attempt)
			defer cancel()
			sub, err := requestrows.Retry(reading, s.pool, req.principal.TenantID, p.RequestID)
			if as[*requestrows.RetriedError](err) && req.key != "" {
				err = nil // the admission returns the first retry for the same key
			}
			if err != nil {
				return response{}, err
			}
			return s.submit(ctx, req, sub)
		},
	})
	e.tag = tagRequests
	e.scope = tenants.ScopeOps
	e.problems = []kind{notFound, conflictingState, overLimit}
	e.requestHeaders = submitRequestHeaders[:1:1] // Prefer
	e.responseHeaders = maps.Clone(submitResponseHeaders)
	delete(e.responseHeaders, policyHeader)
	delete(e.responseHeaders, limitHeader)
	return e
}
