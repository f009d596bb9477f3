package httpapi

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/requests"
)

// calls is an API of the busy endpoints, whose handlers respond without the
// database: what is left is what HTTP costs. indirect is the same API, all of
// whose requests go through huma.
type calls struct {
	direct, indirect *service
	key, wrongKey    string       // with and without the scope
	reached          atomic.Int64 // requests of both that reached huma
}

func newCalls(t testing.TB) *calls {
	t.Helper()
	db := pgtest.New(t)
	c := &calls{}
	tenant, err := tenants.Ensure(t.Context(), db, "shop")
	pgtest.Must(t, err)
	c.key, _, err = tenants.CreateKey(t.Context(), db, tenant.TenantID, "test", []tenants.Scope{tenants.ScopeCart})
	pgtest.Must(t, err)
	c.wrongKey, _, err = tenants.CreateKey(t.Context(), db, tenant.TenantID, "test", []tenants.Scope{tenants.ScopeStock})
	pgtest.Must(t, err)
	keys := tenants.NewAuthenticator(db, tenants.Config{})
	for _, s := range []**service{&c.direct, &c.indirect} {
		*s = &service{
			keys: keys, log: slog.New(slog.DiscardHandler), bounds: defaultBounds,
			connections: connections{limits: Limits{}.withDefaults(), onStop: onEnd(t.Context())},
		}
		(*s).prepare()
		(*s).api.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
			c.reached.Add(1)
			next(ctx)
		})
	}
	c.indirect.direct = nil
	addCalls(c.direct)
	addCalls(c.indirect)
	return c
}

func addCalls(s *service) {
	outcome := holdfast.Outcome{Request: requests.Request{
		RequestID: uuid.UUID{7}, CartID: "cart", VariantID: "shirt", Quantity: 2, Kind: requests.Add, Status: requests.Queued, Lane: lanes.Hot,
		CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(2, 0),
	}}
	item := s.addItem()
	item.handle = func(_ context.Context, req *request, p *cartParams, b *addItemBody) (response, error) {
		v := outcome
		v.CartID, v.VariantID, v.Quantity, v.CorrelationID = string(p.CartID), string(b.VariantID), b.Quantity, req.opts().CorrelationID
		return submitted(v), nil
	}
	add(s, item)
	read := s.getRequest()
	read.handle = func(_ context.Context, req *request, p *getRequestParams, _ *emptyBody) (response, error) {
		v := outcome
		v.RequestID, v.Quantity = p.RequestID, int32(p.Wait)
		return unlessMatched(req, jsonResponse(http.StatusOK, requestBody(v))), nil
	}
	add(s, read)
	checkout := s.checkoutCart()
	checkout.handle = func(_ context.Context, req *request, p *cartParams, _ *emptyBody) (response, error) {
		if p.CartID == "empty" {
			return response{}, holdfast.ErrCartEmpty
		}
		return req.respond(checkedOutJSON{[]reservationJSON{{CartID: p.CartID}}}, nil)
	}
	add(s, checkout)
}

const readID = "0192d3f4-5678-7abc-8def-0123456789ab"

var longID = strings.Repeat("ü", 128)

// The requests that TestDirectCallsAreHumas sends: callPaths with all headers,
// and callBodies to add and to check out.
var (
	callPaths = []string{
		"POST /v1/carts/c/items", "POST /v1/carts/" + url.PathEscape(longID) + "/items", "POST /v1/carts/" + url.PathEscape(longID+"x") + "/items",
		"POST /v1/carts/a%2Fb/items", "POST /v1/carts/%2E%2E/items", "POST /v1/carts//items", "POST /v1/carts/%00/items", "POST /v1/carts/%FF/items",
		"POST /v1/carts/c%20d/items", "POST /v1/carts/c/items?", "POST /v1/carts/c/items?wait=1", "POST /v1/carts/c/items?%", "POST /v1/carts/c/items/",
		"PUT /v1/carts/c/items", "OPTIONS /v1/carts/c/items", "POST /v1/carts/c/checkout", "POST /v1/carts/empty/checkout", "POST /v1/carts/./checkout",
		"GET /v1/requests/" + readID, "HEAD /v1/requests/" + readID, "GET /v1/requests/" + readID + "?wait=5", "GET /v1/requests/" + readID + "?wait=0", "GET /v1/requests/" + readID + "?wait=5&wait=6",
		"GET /v1/requests/" + readID + "?other=1", "GET /v1/requests/" + strings.ToUpper(readID), "GET /v1/requests/{" + readID + "}", "GET /v1/requests/urn:uuid:" + readID,
		"GET /v1/requests/" + readID[1:], "GET /v1/requests/nothing", "DELETE /v1/requests/" + readID,
	}
	callBodies = []string{
		`{"variant_id":"shirt","quantity":2}`, " {\n\t\"quantity\" : 2.0 , \"variant_id\" : \"a\\u00fc\\n\\\"b\" } \r\n", `{"variant_id":"ü/b","quantity":2e0}`,
		``, ` `, `{}`, `[]`, `null`, `7`, `{`, `{}{}`, `{"variant_id":"shirt"}`, `{"variant_id":"shirt","quantity":2,"other":{"a":[1,"}"]}}`, `{"Variant_ID":"shirt","quantity":2}`,
		`{"variant_id":7,"quantity":"2"}`, `{"variant_id":null,"quantity":null}`, `{"variant_id":"shirt","quantity":2,"quantity":3}`, `{"variant_id":"shirt","quantity":0}`,
		`{"variant_id":"shirt","quantity":1.5}`, `{"variant_id":"` + longID + `","quantity":2}`, `{"variant_id":"` + longID + `x","quantity":2}`, `{"variant_id":"\ud800","quantity":2}`,
		`{"variant_id":"a\tb","quantity":2}`, "{\"variant_id\":\"\xff\",\"quantity\":2}", `{"\u0076ariant_id":"shirt","quantity":2}`, `{"":1}`, `{"block":"b","any_of":2}`,
		`{"block":"b","unit_ids":["x","y\\"]}`, `{"block":"b","quantity":2}`, `{"variant_id":"shirt","quantity":2}` + strings.Repeat(" ", bodyMax),
	}
	callHeaders = []http.Header{
		{}, {"Authorization": {"Bearer wrong"}}, {"Authorization": nil}, {"Content-Type": {"application/json; charset=utf-8"}}, {"Content-Type": {"text/plain"}},
		{"Content-Type": {"application/json", "application/json"}}, {"Content-Type": nil}, {"Content-Encoding": {"gzip"}}, {"Idempotency-Key": {"k"}}, {"Idempotency-Key": {"k", "k"}},
		{"Idempotency-Key": {"a\nb"}}, {"X-Correlation-Id": {"mine", "mine"}}, {"X-Correlation-Id": {"\x00"}}, {"Accept": {"text/html"}}, {"If-None-Match": {"*"}}, {"Prefer": {"wait=5"}},
	}
)

// send sends a request with a valid key, unless header has another one.
func (c *calls) send(s *service, path, body string, header http.Header) (r reply) {
	method, target, _ := strings.Cut(path, " ")
	sent := httptest.NewRequestWithContext(context.Background(), method, target, strings.NewReader(body))
	maps.Copy(sent.Header, http.Header{"Authorization": {"Bearer " + c.key}, "Content-Type": {"application/json"}, "X-Correlation-Id": {"mine"}})
	maps.Copy(sent.Header, header)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, sent)
	if id := w.Header().Get(correlationHeader); id != "mine" && uuid.Validate(id) == nil {
		w.Header().Set(correlationHeader, "made")
	}
	return reply{w.Code, w.Header(), w.Body.Bytes()}
}

// The busy endpoints respond without huma as they do through it: status, header
// and body, to valid and to invalid requests. The document is huma's.
func TestDirectCallsAreHumas(t *testing.T) {
	t.Parallel()
	calls := newCalls(t)
	direct, indirect := calls.direct, calls.indirect
	if len(direct.direct) < 3 || len(indirect.direct) > 0 {
		t.Fatalf("%d endpoints are direct, and %d of the API without", len(direct.direct), len(indirect.direct))
	}
	if diff := cmp.Diff(encode(indirect.api.OpenAPI()), encode(direct.api.OpenAPI())); diff != "" {
		t.Errorf("the document differs (-huma +direct):\n%s", diff)
	}
	statuses := make(map[int]int)
	compare := func(path, body string, header http.Header) {
		t.Helper()
		want, got := calls.send(indirect, path, body, header), calls.send(direct, path, body, header)
		statuses[got.status]++
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(reply{})); diff != "" {
			t.Errorf("%s %.80q %v (-huma +direct):\n%s", path, body, header, diff)
		}
	}
	for _, path := range callPaths {
		for _, header := range append(callHeaders, http.Header{"Authorization": {"Bearer " + calls.wrongKey}}) {
			body := callBodies[0]
			if strings.HasSuffix(path, "/checkout") {
				body = ""
			}
			compare(path, body, header)
		}
	}
	for _, body := range callBodies {
		compare(callPaths[0], body, nil)
		compare("POST /v1/carts/c/checkout", body, nil)
	}
	for _, status := range []int{200, 202, 304, 401, 403, 404, 405, 409, 413, 415, 422, 400} {
		if statuses[status] == 0 {
			t.Errorf("no response has the status %d: %v", status, statuses)
		}
	}
	before := calls.reached.Load()
	for _, path := range []string{callPaths[0], callPaths[1], "POST /v1/carts/c/checkout", "GET /v1/requests/" + readID} {
		calls.send(direct, path, callBodies[0], nil)
	}
	if n := calls.reached.Load() - before; n > 0 {
		t.Errorf("%d valid requests went through huma", n)
	}
}

// discarded is the writer of a response that is not read.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header              { return d.header }
func (d *discarded) WriteHeader(status int)           { d.status = status }
func (d *discarded) Write(p []byte) (int, error)      { return len(p), nil }
func (d *discarded) SetReadDeadline(time.Time) error  { return nil }
func (d *discarded) SetWriteDeadline(time.Time) error { return nil }

// BenchmarkCalls is the cost of the busy calls without the network, the groups
// and the database.
func BenchmarkCalls(b *testing.B) {
	calls := newCalls(b)
	for _, c := range []struct{ name, method, path, body string }{
		{"add", "POST", "/v1/carts/cart-0123456789/items", `{"variant_id":"shirt-m","quantity":2}`},
		{"get", "GET", "/v1/requests/" + uuid.NewString(), ""},
		{"checkout", "POST", "/v1/carts/cart-0123456789/checkout", ""},
	} {
		b.Run(c.name, func(b *testing.B) {
			whole := httptest.NewRequestWithContext(b.Context(), c.method, c.path, strings.NewReader(c.body))
			whole.Header.Set("Authorization", "Bearer "+calls.key)
			whole.Header.Set("Content-Type", "application/json")
			w := &discarded{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				r := *whole
				r.Body = io.NopCloser(strings.NewReader(c.body))
				calls.direct.ServeHTTP(w, &r)
				if w.status >= 300 {
					b.Fatal(w.status)
				}
			}
		})
	}
}
