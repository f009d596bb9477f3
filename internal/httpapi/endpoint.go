package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tenants"
)

// endpoint is one operation of the API. P holds the parameters of its path and
// query, with huma's tags. B is its JSON body, emptyBody if it has none.
type endpoint[P, B any] struct {
	id           string // of the operation in the document
	verb         string // of the operation in telemetry, set by add
	method, path string
	tag          string
	summary, doc string
	// scope is what the caller's key must have; "" if no key is needed.
	scope tenants.Scope
	// also are the scopes that suffice in place of scope.
	also []tenants.Scope
	// responses has a value of the body's type for each status of success, nil
	// for no body.
	responses map[int]any
	// problems are the kinds that it may return, beyond those of every
	// endpoint.
	problems []kind
	// requestHeaders are the header fields that it reads, responseHeaders those
	// that it sends, beyond those of every endpoint.
	requestHeaders  []*huma.Param
	responseHeaders map[string]*huma.Param
	// upload documents the body of an endpoint that reads the body itself.
	upload map[string]*huma.MediaType
	// timeout bounds the work after the JSON body was read. 0 is
	// bounds.request; with ownBounds each part has its own. An upload is within
	// it.
	timeout time.Duration
	handle  func(ctx context.Context, req *request, p *P, b *B) (response, error)
}

// bounds are how long a silent database can keep a caller waiting, and how long
// a stream lasts.
type bounds struct {
	authenticate time.Duration // reading the key
	attempt      time.Duration // one transaction of a request
	request      time.Duration // all attempts together, without the wait that the caller asks for
	grace        time.Duration // a read that goes on after that wait
	stream       time.Duration // a stream of events, which the client then opens again
	heartbeat    time.Duration // between two pieces of a stream
}

// defaultBounds let a request, an add too, take 13 s at most, or 5 s after the
// wait that the caller asks for, plus the time that its body takes to arrive.
var defaultBounds = bounds{
	authenticate: 3 * time.Second, attempt: 5 * time.Second, request: 10 * time.Second, grace: 2 * time.Second,
	stream: 5 * time.Minute, heartbeat: 10 * time.Second,
}

// ownBounds is the timeout of an endpoint that bounds each of its parts. A
// second timer would cost it 2 % of its time.
const ownBounds time.Duration = -1

// output writes a response when huma asks for it.
type output struct{ Body func(huma.Context) }

// add registers the endpoint.
func add[P, B any](s *service, e endpoint[P, B]) {
	e.verb = "httpapi." + strings.ReplaceAll(e.id, "-", "_")
	op := e.operation(s)
	if e.scope != "" {
		op.Middlewares = huma.Middlewares{s.requireScope(e.scopes()...), s.checkParameters(queryLists[P]())}
	}
	addDirect(s, &e)
	huma.Register(s.api, op, func(ctx context.Context, p *P) (*output, error) {
		req := requestOf(ctx)
		resp := e.serve(ctx, s, req, p)
		return &output{func(huma.Context) { resp.write(req.w) }}, nil
	})
	e.documentBody(s)
}

// serve returns the response to a request whose key and parameters are valid.
func (e *endpoint[P, B]) serve(ctx context.Context, s *service, req *request, p *P) response {
	resp, err := e.run(ctx, req, p, cmp.Or(e.timeout, s.bounds.request))
	if err != nil {
		if plaintext, ok := bearer(req.http.Header); ok && isMoving(err) {
			s.keys.Forget(plaintext) // the next call looks for the tenant again
		}
		return s.errorResponse(ctx, err)
	}
	return resp
}

// run reads the body and then handles the request within the given time, as one
// verb of telemetry. Limits bound the time for the body.
func (e *endpoint[P, B]) run(ctx context.Context, req *request, p *P, within time.Duration) (resp response, err error) {
	ctx, done := telemetry.Verb(ctx, e.verb)
	defer func() { done(outcomeOf(err)) }()
	b := new(B)
	if e.readsBody() {
		if err := req.decode(any(b).(payload)); err != nil {
			return response{}, err
		}
	}
	if within != ownBounds {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	if e.isKeyed() {
		req.key, err = idempotencyKey(req.http.Header)
		if err != nil {
			return response{}, err
		}
	}
	resp, err = e.handle(ctx, req, p, b)
	if errors.Is(err, holdfast.ErrOutcomeUnknown) && (req.key != "" || e.method == http.MethodPut) {
		err = &repeatableError{err}
	}
	return resp, err
}

// repeatableError means that a call may have taken effect, and that its
// repetition is harmless.
type repeatableError struct{ cause error }

func (e *repeatableError) Error() string { return e.cause.Error() }

// Unwrap returns what the call returned.
func (e *repeatableError) Unwrap() error { return e.cause }

// scopes are those of which the caller's key must have one.
func (e *endpoint[P, B]) scopes() []tenants.Scope {
	return append([]tenants.Scope{e.scope}, e.also...)
}

// readsBody reports whether the endpoint reads a JSON body. The body of a
// DELETE has no meaning and is ignored.
func (e *endpoint[P, B]) readsBody() bool {
	return e.upload == nil && (e.method == http.MethodPost || e.method == http.MethodPut || e.method == http.MethodPatch)
}

// isKeyed reports whether the endpoint honours an idempotency key.
func (e *endpoint[P, B]) isKeyed() bool {
	return e.method == http.MethodPost || e.method == http.MethodPatch || e.method == http.MethodDelete
}

// outcomeOf returns the outcome and the error that telemetry records. An error
// of the caller is an outcome only.
func outcomeOf(err error) (string, error) {
	if err == nil {
		return "", nil
	}
	p := problemOf(err)
	if p.Status < http.StatusInternalServerError {
		return p.Code, nil
	}
	return p.Code, err
}

// errorResponse returns the response to a request that failed with err. It logs
// errors that are not the caller's. It does not log a rejection under load,
// which is counted, nor a body that was cut off because the program stops.
func (s *service) errorResponse(ctx context.Context, err error) response {
	p := problemOf(err)
	switch {
	case p.Status == http.StatusInternalServerError:
		s.log.ErrorContext(ctx, "a request failed", "code", p.Code, "error", err)
	case as[*admission.RefusedError](err), errors.Is(err, errStopping):
	case p.Status > http.StatusInternalServerError && ctx.Err() == nil:
		s.log.WarnContext(ctx, "a request was not served", "code", p.Code, "error", err)
	}
	return p.response()
}
