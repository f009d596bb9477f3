package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// endpoint is one call of the API. P holds the parameters of its path and query, with huma's tags, and B is its JSON
// body (none if it has nothing to say).
type endpoint[P, B any] struct {
	id           string // names the operation
	verb         string // the same in telemetry, set by add
	method, path string
	tag          string
	summary, doc string
	// scope is what the caller's key must open; "" for everybody.
	scope tenants.Scope
	// answers has a value of the body's type for each status of success, nil for no body.
	answers map[int]any
	// problems are the kinds it may answer with, beyond those that every call has.
	problems []kind
	// headers are those it reads, and replies those it sends, beyond the usual.
	headers []*huma.Param
	replies map[string]*huma.Param
	// upload is the documented body of a call that reads its body itself.
	upload map[string]*huma.MediaType
	// timeout bounds the call from its JSON body's end on; 0: bounds.call, ownBounds: each part has its own. An upload is part
	// of it.
	timeout time.Duration
	handle  func(ctx context.Context, c *call, p *P, b *B) (answer, error)
}

// bounds keep a silent database from keeping a caller.
type bounds struct {
	authenticate time.Duration // who the caller is
	attempt      time.Duration // one transaction of a call
	call         time.Duration // a call whose JSON body is there, all attempts together, without the wait that the caller asks for
	grace        time.Duration // a read that goes on after the time that the caller asked to wait
}

// defaultBounds answer a call, and so an add, within 13 s, or 5 s after the time that the caller asked to wait, beside the
// time that its body takes to arrive.
var defaultBounds = bounds{authenticate: 3 * time.Second, attempt: 5 * time.Second, call: 10 * time.Second, grace: 2 * time.Second}

// ownBounds is the timeout of a call that bounds each of its parts itself: a second timer would cost it a fiftieth of its time.
const ownBounds time.Duration = -1

// output is how an answer leaves huma.
type output struct{ Body func(huma.Context) }

// add registers the endpoint.
func add[P, B any](s *service, e endpoint[P, B]) {
	e.verb = "httpapi." + strings.ReplaceAll(e.id, "-", "_")
	op := e.operation(s)
	if e.scope != "" {
		op.Middlewares = huma.Middlewares{s.guard(e.scope), s.strict(queryLists[P]())}
	}
	huma.Register(s.api, op, func(ctx context.Context, p *P) (*output, error) {
		c := callOf(ctx)
		a, err := e.run(ctx, c, p, cmp.Or(e.timeout, s.bounds.call))
		if err != nil {
			a = s.refuse(ctx, err)
		}
		return &output{func(huma.Context) { a.write(c.w) }}, nil
	})
	e.documentBody(s)
}

// run reads the body, and then makes the call within that time, as one verb of telemetry. What a body may take is bounded
// by Limits.
func (e *endpoint[P, B]) run(ctx context.Context, c *call, p *P, within time.Duration) (a answer, err error) {
	ctx, done := telemetry.Verb(ctx, e.verb)
	defer func() { done(outcomeOf(err)) }()
	b := new(B)
	if e.readsBody() {
		if err := c.decode(any(b).(payload)); err != nil {
			return answer{}, err
		}
	}
	if within != ownBounds {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, within)
		defer cancel()
	}
	if e.isKeyed() {
		if c.key, err = idempotencyKey(c.r.Header); err != nil {
			return answer{}, err
		}
		if c.key != "" && e.readsBody() {
			c.body = encode(b) // the same for all ways to write it
		}
	}
	return e.handle(ctx, c, p, b)
}

// readsBody reports whether the call has a JSON body. That of a DELETE has no meaning and is not looked at.
func (e *endpoint[P, B]) readsBody() bool {
	return e.upload == nil && (e.method == http.MethodPost || e.method == http.MethodPut || e.method == http.MethodPatch)
}

// isKeyed reports whether the call honours an idempotency key.
func (e *endpoint[P, B]) isKeyed() bool {
	return e.method == http.MethodPost || e.method == http.MethodPatch || e.method == http.MethodDelete
}

// outcomeOf sorts a call's error for telemetry: what the caller did is an outcome, not an error.
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

// refuse is the problem that err is answered with. What is not the caller's doing is logged, but not a refusal under load, which
// is counted, nor a body that the stop of the program cut off.
func (s *service) refuse(ctx context.Context, err error) answer {
	p := problemOf(err)
	switch {
	case p.Status == http.StatusInternalServerError:
		s.log.ErrorContext(ctx, "a call failed", "code", p.Code, "error", err)
	case as[*requests.RefusedError](err), errors.Is(err, errStopping):
	case p.Status > http.StatusInternalServerError && ctx.Err() == nil:
		s.log.WarnContext(ctx, "a call was not served", "code", p.Code, "error", err)
	}
	return p.answer()
}
