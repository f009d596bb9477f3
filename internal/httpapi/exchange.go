package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/internal/tenants"
)

// request is one HTTP request, and what the package has read of it.
type request struct {
	w    http.ResponseWriter
	http *http.Request
	// id is made here. It is the id of what the call makes, and the correlation
	// id if the caller sent no valid one.
	id uuid.UUID
	// givenCorrelationID is the caller's correlation id, "" if it is missing or
	// not valid. correlationError is then what is wrong with it. Endpoints with
	// a scope return that, the others ignore it.
	givenCorrelationID string
	correlationError   string
	correlationID      string // given, or made of id
	principal          tenants.Principal
	scopes             []tenants.Scope // the endpoint's; the principal's key has one of them
	// key is the idempotency key, "" if it is missing.
	key  string
	info holdfast.CallInfo // of the call that the request makes
}

type requestKey struct{}

func requestOf(ctx context.Context) *request {
	req, ok := ctx.Value(requestKey{}).(*request)
	if !ok {
		panic("httpapi: the context of an endpoint has no request")
	}
	return req
}

const correlationHeader = "X-Correlation-Id"

// Values of header fields that most responses have. They are shared: a response
// replaces them, and never changes one.
var noStore, noSniff, isJSON = []string{"no-store"}, []string{"nosniff"}, []string{"application/json"}

// newRequest makes the request of r. Its URL has the canonical path. The
// correlation id is in the context and in the header of the response.
func newRequest(w http.ResponseWriter, r *http.Request) *request {
	req := &request{w: w, id: requestrows.NewID()}
	switch given, _, err := singleHeader(r.Header, correlationHeader); {
	case err != nil:
		req.correlationError = sentTwice
	case given == "":
	case !isToken(given):
		req.correlationError = tokenRule
	default:
		req.givenCorrelationID = given
	}
	req.correlationID = cmp.Or(req.givenCorrelationID, req.id.String())
	h := w.Header()
	h.Set(correlationHeader, req.correlationID)
	h["Cache-Control"] = noStore // unless the response replaces it
	h["X-Content-Type-Options"] = noSniff
	ctx := telemetry.WithCorrelation(r.Context(), req.correlationID)
	req.http = r.WithContext(context.WithValue(ctx, requestKey{}, req))
	req.http.URL = canonicalURL(r.URL)
	return req
}

// origin is the actor that the audit log records.
func (req *request) origin() audit.Origin {
	return audit.Origin{Actor: audit.User(req.principal.Prefix), CorrelationID: req.correlationID}
}

// opts returns the options of the call that the request makes.
func (req *request) opts() *holdfast.CallOpts {
	by := req.origin()
	return &holdfast.CallOpts{IdempotencyKey: req.key, CorrelationID: by.CorrelationID, Actor: by.Actor, ID: req.id, Info: &req.info}
}

// respond returns the response to a call: 200 with the body, unless it failed.
func (req *request) respond(body any, err error) (response, error) {
	if err != nil {
		return response{}, err
	}
	resp := jsonResponse(http.StatusOK, body)
	if req.info.Replayed {
		resp = resp.with(replayedHeader, "true")
	}
	return resp, nil
}

// tokenRule is what isToken requires.
var tokenRule = fmt.Sprintf("must be 1 to %d characters of UTF-8 without control characters", requestrows.KeyMax)

// isToken reports whether s is 1 to requestrows.KeyMax characters of UTF-8 without
// control characters.
func isToken(s string) bool { return s != "" && requestrows.ValidateToken("", s) == nil }

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
)

// idempotencyKey returns the key of the request, "" if it has none. A key that
// can't be stored is an *inventory.InvalidError: to ignore it would take the
// caller's protection away unnoticed.
func idempotencyKey(h http.Header) (string, error) {
	key, given, err := singleHeader(h, keyHeader)
	if err == nil && given && !isToken(key) {
		err = &inventory.InvalidError{Field: keyHeader, Message: tokenRule}
	}
	if err != nil {
		return "", err
	}
	return key, nil
}

type headerField struct{ name, value string }

// response is the HTTP response of one request.
type response struct {
	status int
	header []headerField // beyond the usual fields, in place of earlier ones
	body   []byte
	// stream sends the body in pieces, in place of body, once the header is
	// sent; nil for a body that is sent at once.
	stream func(w http.ResponseWriter)
}

// jsonResponse returns a response with v as its JSON body.
func jsonResponse(status int, v any) response { return response{status: status, body: encode(v)} }

// encode returns v as JSON. Every body of this package can be encoded.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("httpapi: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// with sets a header field of the response and returns it.
func (resp response) with(name, value string) response {
	resp.header = append(resp.header, headerField{name, value})
	return resp
}

// write sends the response. It ignores errors of the connection, because
// nothing can be sent after them.
func (resp response) write(w http.ResponseWriter) {
	h := w.Header()
	h["Content-Type"] = isJSON
	for _, field := range resp.header {
		h.Set(field.name, field.value)
	}
	if resp.status == http.StatusNotModified || resp.status == http.StatusNoContent {
		h.Del("Content-Type")
		w.WriteHeader(resp.status)
		return
	}
	if resp.stream != nil {
		w.WriteHeader(resp.status)
		resp.stream(w)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(resp.body)))
	w.WriteHeader(resp.status)
	_, _ = w.Write(resp.body)
}
