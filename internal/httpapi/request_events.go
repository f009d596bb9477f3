package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
)

type requestEventsParams struct {
	RequestID uuid.UUID `path:"request_id" format:"uuid"`
}

func (s *service) requestEvents() endpoint[requestEventsParams, emptyBody] {
	return endpoint[requestEventsParams, emptyBody]{
		id: "stream-request", method: http.MethodGet, path: "/v1/requests/{request_id}/events", tag: tagRequests, scope: tenants.ScopeCart, also: operators,
		summary: "Follow a request until it is finished",
		doc: "Server-sent events: one with the present state, then one for each change of the status or the position, which is read every second. " +
			"The response ends after the event with the final status; a client that connects again with its id gets 204, after which an " +
			"EventSource stops. The response also ends " + streamEnds,
		responses:       map[int]any{http.StatusOK: eventsOf{requestJSON{}, []any{"request"}}, http.StatusNoContent: nil},
		problems:        []kind{notFound, overLimit},
		requestHeaders:  []*huma.Param{lastEventID},
		responseHeaders: map[string]*huma.Param{},
		timeout:         ownBounds,
		handle: func(ctx context.Context, req *request, p *requestEventsParams, _ *emptyBody) (response, error) {
			v, err := s.view(ctx, req, &getRequestParams{RequestID: p.RequestID})
			if err != nil {
				return response{}, err
			}
			if v.Status.Finished() && req.http.Header.Get(lastEventHeader) == requestEventID(v) {
				return response{status: http.StatusNoContent}, nil
			}
			return s.streamResponse(req, func(ctx context.Context, events *eventStream) {
				s.followRequest(ctx, req, events, v)
			}, func() {})
		},
	}
}

// observeEvery is how often the position of a request is read.
const observeEvery = time.Second

// followRequest sends the states of a request until it is finished, the
// connection fails, or ctx ends. If ctx ends and the client is still connected,
// it sends the present state once more.
func (s *service) followRequest(ctx context.Context, req *request, events *eventStream, v requests.View) {
	for {
		if err := events.send(requestEventID(v), "request", encode(requestBody(v))); err != nil || v.Status.Finished() {
			return
		}
		next, err := s.tenant(req).Observe(ctx, v.RequestID, observeEvery)
		switch {
		case ctx.Err() != nil:
			s.sendLast(req, events, v.RequestID)
			return
		case err == nil:
			v = next
		case problemOf(err).Code != overloaded.code:
			s.log.WarnContext(ctx, "a stream of a request ended", "error", err)
			return
		}
	}
}

// sendLast sends the present state of a request whose stream ends.
func (s *service) sendLast(req *request, events *eventStream, id uuid.UUID) {
	ctx, cancel := context.WithTimeout(req.http.Context(), lastReadTimeout)
	defer cancel()
	v, err := s.tenant(req).Request(ctx, id)
	if err == nil {
		_ = events.send(requestEventID(v), "request", encode(requestBody(v)))
	}
}

// requestEventID identifies the part of a request's state whose changes are
// events.
func requestEventID(v requests.View) string {
	id := string(v.Status)
	if v.Position != nil {
		id += "-" + strconv.FormatInt(*v.Position, 10)
	}
	return id
}
