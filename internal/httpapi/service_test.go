package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/inventory"
	"github.com/holdfast/holdfast/internal/pg"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/ratelimit"
)

// TestKeysAndScopes checks which keys and scopes each operation accepts.
func TestKeysAndScopes(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{}, ratelimit.Rate{})
	golden(t, "unauthorized", s.call(401, "GET", "/v1/stocks", "", "Authorization", ""))
	golden(t, "unauthorized_unknown_key", s.call(401, "GET", "/v1/stocks", "", "Authorization", "Bearer hf_nonsense"))
	for _, sent := range []string{"Basic " + s.key, "Bearer", "Bearer ", s.key, "Bearer " + s.key + "x"} {
		s.refused(unauthorized, "GET", "/v1/stocks", "", "Authorization", sent)
	}
	s.call(200, "GET", "/v1/stocks", "", "Authorization", "bearer  "+s.key)

	calls := map[string][][3]string{ // by the scopes that suffice
		"stock": {
			{"PUT", "/v1/stocks/shirt", `{"stock":1}`}, {"POST", "/v1/stocks/shirt/adjust", `{"delta":1}`},
			{"GET", "/v1/stocks/shirt"}, {"GET", "/v1/stocks"}, {"POST", "/v1/stocks/import"},
			{"POST", "/v1/checkouts/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11/payment", `{"result":"paid"}`},
		},
		"cart": {
			{"POST", "/v1/carts/c/items", `{"variant_id":"shirt","quantity":1}`}, {"PATCH", "/v1/carts/c/items/shirt", `{"quantity":1}`},
			{"GET", "/v1/carts/c"}, {"DELETE", "/v1/carts/c/items/shirt"}, {"DELETE", "/v1/carts/c"},
			{"POST", "/v1/carts/c/extend", `{"seconds":1}`}, {"POST", "/v1/carts/c/checkout"},
			{"POST", "/v1/checkouts", `{"cart_id":"c","payment_reference":"p"}`}, {"GET", "/v1/checkouts/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11"},
			{"POST", "/v1/reservations/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11/commit"},
		},
		"cart or ops": {
			{"GET", "/v1/requests/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11"},
			{"GET", "/v1/requests/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11/events"},
			{"GET", "/v1/reservations/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11"},
			{"GET", "/v1/reservations/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11/history"},
			{"POST", "/v1/reservations/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11/release"},
			{"POST", "/v1/reservations/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11/extend", `{"seconds":1}`},
		},
		"ops": {
			{"GET", "/v1/lanes"}, {"PATCH", "/v1/lanes/hot", `{}`}, {"POST", "/v1/admissions", `{"subject":"customer-1"}`},
			{"PUT", "/v1/lanes/hot/variants/shirt"}, {"DELETE", "/v1/lanes/hot/variants/shirt"},
			{"POST", "/v1/requests/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11/retry"},
		},
	}
	total := 0
	for _, has := range tenants.AllScopes() {
		s.key = s.newKey(s.tenant, has)
		for needs, list := range calls {
			for _, call := range list {
				if !slices.Contains(strings.Split(needs, " or "), string(has)) {
					p := s.refused(forbidden, call[0], call[1], call[2])
					if !strings.HasPrefix(needs, p.Scope) || !strings.HasSuffix(p.Detail, " "+needs) {
						t.Errorf("%s %s lacks the scope %q (%s), want %q", call[0], call[1], p.Scope, p.Detail, needs)
					}
					continue
				}
				total++
				if r := s.send(call[0], call[1], strings.NewReader(call[2])); r.status == 401 || r.status == 403 {
					t.Errorf("%s %s: %d with the scope %s", call[0], call[1], r.status, has)
				}
			}
		}
	}
	if want := 34; total != want {
		t.Errorf("%d calls were accepted, want all %d", total, want)
	}
	golden(t, "forbidden", s.call(403, "GET", "/v1/stocks", ""))
	if n := s.count(`SELECT count(*) FROM audit_log WHERE actor_kind = 'user' AND actor_id = $1`, "hf_"); n != 0 {
		t.Error("an actor is only the prefix of a key")
	}
}

// TestActor checks that the audit log has the prefix of the key.
func TestActor(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	s.add("c", "shirt", 1)
	s.decide()
	for _, actor := range s.rows(`SELECT actor_kind || ' ' || actor_id FROM audit_log`) {
		if actor != "user "+s.key[:9] {
			t.Errorf("the actor is %s, want the prefix of %s", actor, s.key)
		}
	}
}

// TestLanes reads and controls the lanes.
func TestLanes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	golden(t, "list_lanes", s.call(200, "GET", "/v1/lanes", ""))
	golden(t, "control_lane", s.call(200, "PATCH", "/v1/lanes/normal", `{"paused":true,"rate_cap":50}`))
	id := s.add("c", "shirt", 1)
	s.decide()
	if got := s.call(200, "GET", "/v1/requests/"+id, "").text(t, "status"); got != "queued" {
		t.Errorf("a paused lane left the request %s", got)
	}
	lane := s.call(200, "PATCH", "/v1/lanes/normal", `{"rate_cap":null}`).object(t)
	if lane["paused"] != true || lane["rate_cap"] != nil || lane["depth"] != 1.0 {
		t.Errorf("the lane is %v, want paused without a cap, with one request", lane)
	}
	s.call(200, "PATCH", "/v1/lanes/normal", `{"paused":false}`, keyHeader, "resume")
	s.call(200, "PATCH", "/v1/lanes/normal", `{"paused":false}`, keyHeader, "resume")
	s.decide()
	if got := s.call(200, "GET", "/v1/requests/"+id, "").text(t, "status"); got != "done" {
		t.Errorf("a resumed lane left the request %s", got)
	}
	for _, unknown := range []string{"cold", "%00", "%FF", "hot%20", "normal/"} {
		r := s.send("PATCH", "/v1/lanes/"+unknown, strings.NewReader(`{"paused":true}`))
		s.isProblem(r, kind{code: notFound.code, status: 404})
	}
}

// TestHotVariantsListed checks that a tenant sees its own hot variants, the
// reason for each, and its own diversion, and nothing of another tenant.
func TestHotVariantsListed(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("pinned", `{"stock":1,"lane":"hot"}`)
	const why = "412/s, 0/s turned away, 37 waiting, over 200/s or 500 waiting for 2s"
	for _, sql := range []string{
		`UPDATE hot_variants SET slot = 0 WHERE tenant_id = $1 AND $2 <> ''`, // the slot of a pin depends on the tenant's id
		`INSERT INTO hot_variants (tenant_id, variant_id, slot, state, why) VALUES ($1, 'rush', 1, 'hot', $2)`,
		`INSERT INTO hot_observations (tenant_id, variant_id, rate, waiting) VALUES ($1, 'rush', 412.5, length($2))`,
		`INSERT INTO diverted_tenants (tenant_id, slot, why) VALUES ($1, 1, $2)`,
	} {
		if _, err := s.db.Exec(t.Context(), sql, s.tenant.TenantID, why); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "list_lanes_hot", s.call(200, "GET", "/v1/lanes", ""))
	other, key := s.newTenant("other")
	lanes := s.call(200, "GET", "/v1/lanes", "", "Authorization", "Bearer "+key).object(t)
	if hots, ok := lanes["hot_variants"].([]any); !ok || len(hots) != 0 || lanes["diversion"] != nil {
		t.Errorf("the tenant %s sees %v, and %v of another tenant", other.TenantID, lanes["hot_variants"], lanes["diversion"])
	}
}

// TestProbes checks that probes need no key.
func TestProbes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	golden(t, "livez", s.call(200, "GET", "/livez", "", "Authorization", ""))
	golden(t, "readyz", s.call(200, "GET", "/readyz", "", "Authorization", ""))
	golden(t, "readyz", s.call(200, "GET", "/health", "", "Authorization", ""))
	if r := s.call(200, "GET", "/metrics", "", "Authorization", ""); string(r.body) != "up 1\n" {
		t.Errorf("metrics: %s", r.body)
	}
	_, err := s.db.Exec(t.Context(), `UPDATE lane_slots SET low_water = 1000 WHERE lane = 'normal' AND slot = 0`)
	s.must(err)
	golden(t, "not_ready", s.call(503, "GET", "/readyz", "", "Authorization", ""))
	_, err = s.db.Exec(t.Context(), `SELECT setval('reservation_requests_sequence_seq', 1000)`)
	s.must(err)
	s.call(200, "GET", "/readyz", "", "Authorization", "")
	_, err = s.db.Exec(t.Context(), `DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
	s.must(err)
	s.call(200, "GET", "/readyz", "") // one success is enough
	s.service.migrated.Store(false)
	golden(t, "not_ready", s.call(503, "GET", "/readyz", "", "Authorization", ""))
	golden(t, "not_ready", s.call(503, "GET", "/health", "", "Authorization", ""))
}

// TestDocs checks the document and the pages, which load no asset of another
// server.
func TestDocs(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, ratelimit.Rate{}, ratelimit.Rate{})
	document := s.call(200, "GET", "/openapi.json", "", "Authorization", "")
	want, err := OpenAPI("")
	s.must(err)
	if !bytes.Equal(document.body, want) || document.header.Get("Content-Type") != "application/openapi+json" {
		t.Errorf("%s of %d bytes, want the document's %d", document.header.Get("Content-Type"), len(document.body), len(want))
	}
	s.call(304, "GET", "/openapi.json", "", "If-None-Match", document.header.Get("ETag"))
	for path, contentType := range map[string]string{"/": "text/html", "/docs": "text/html", "/docs/page.css": "text/css", "/docs/page.js": "text/javascript"} {
		r := s.call(200, "GET", path, "", "Authorization", "")
		if !strings.HasPrefix(r.header.Get("Content-Type"), contentType) || !strings.Contains(r.header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: headers %v", path, r.header)
		}
		if strings.Contains(string(r.body), "://") || strings.Contains(string(r.body), "innerHTML") {
			t.Errorf("%s refers to another server, or treats text as markup", path)
		}
	}
}

// TestRoot follows each link of the root page, and sends the requests that it
// shows.
func TestRoot(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.serveLanes()
	page := string(s.call(200, "GET", "/", "", "Authorization", "").body)
	links := regexp.MustCompile(`href="(/[^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(links) < 6 || strings.Contains(page, "<script") {
		t.Errorf("the page has %d links, or a script: %s", len(links), page)
	}
	for _, link := range links {
		r := s.send("GET", link[1], nil, "Authorization", "")
		if slow := link[1] == "/readyz" && r.status == 503; r.status != 200 && !slow { // the database may take longer than the probe waits
			t.Errorf("the page links to %s, which is %d", link[1], r.status)
		}
	}
	calls := regexp.MustCompile(`(?s)\$HOLDFAST_URL(/[^"]+)".*?-d '([^']+)'`).FindAllStringSubmatch(page, -1)
	if len(calls) != 2 {
		t.Fatalf("the page shows the calls %q, want 2", calls)
	}
	s.call(200, "PUT", calls[0][1], calls[0][2])
	if r := s.call(200, "POST", calls[1][1], calls[1][2], "Prefer", "wait=5"); r.text(t, "status") != "done" {
		t.Errorf("the request of the page ends as %s", r.body)
	}
	s.refused(methodNotAllowed, "POST", "/", "{}", "Authorization", "")
}

// TestOutage checks that without a database the response is 503 without the
// error, which is in the log.
func TestOutage(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	nowhere, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nowhere.Close)
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	stop := s.serve(nowhere, s.config)

	golden(t, "overloaded", s.call(503, "GET", "/v1/stocks/shirt", ""))
	s.refused(overloaded, "POST", "/v1/stocks/shirt/adjust", `{"delta":1}`)
	s.refused(overloaded, "PUT", "/v1/stocks/shirt", `{"stock":1}`)
	s.refused(notReady, "GET", "/readyz", "")
	s.call(200, "GET", "/livez", "")
	const item = `{"variant_id":"shirt","quantity":1}`
	s.refused(overloaded, "POST", "/v1/carts/c/items", item, keyHeader, "k")
	s.refused(overloaded, "POST", "/v1/carts/c/items", item) // no request could be sent
	stop()
	s.refused(overloaded, "POST", "/v1/carts/c/items", item) // the queue is closed: no call was accepted
	if log := s.logged.String(); !strings.Contains(log, "a request was not served") || !strings.Contains(log, "127.0.0.1") {
		t.Errorf("the log does not have the cause: %s", log)
	}
}

// TestPanic checks that a panic is logged, and that the response contains no
// part of it.
func TestPanic(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.service.mux.HandleFunc("GET /broken", func(http.ResponseWriter, *http.Request) { panic("secret") })
	r := s.call(500, "GET", "/broken", "")
	s.isProblem(r, internalError)
	golden(t, "internal", r)
	if !strings.Contains(s.logged.String(), "secret") {
		t.Error("the panic is not in the log")
	}
}

// TestRules checks the kind of wrapped errors, and that the problem of an
// unknown error contains no part of it.
func TestRules(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]kind{
		errors.Join(inventory.ErrHoldExpired, errors.New("more")):                  holdExpired,
		&bodyError{&http.MaxBytesError{}}:                                          tooLarge,
		&bodyError{io.ErrUnexpectedEOF}:                                            malformed,
		&importError{cause: &bodyError{io.ErrUnexpectedEOF}}:                       malformed,
		&pgconn.PgError{Code: "57P01"}:                                             overloaded,
		&pgconn.PgError{Code: "23505", Message: "duplicate key secret"}:            internalError,
		admission.ErrOverLimit:                                                     overLimit,
		&admission.RefusedError{TenantOnly: true, RetryAfter: time.Second}:         overLimit,
		fmt.Errorf("submit: %w", &admission.RefusedError{RetryAfter: time.Minute}): overloaded,
		context.DeadlineExceeded:                                                   overloaded,
		holdfast.ErrOutcomeUnknown:                                                 outcomeUnknown,
	} {
		p := problemOf(err)
		if p.Code != want.code || p.Status != want.status || strings.Contains(string(encode(p)), "secret") {
			t.Errorf("%v is %s, want %s", err, encode(p), want.code)
		}
		if (p.Status == 429 || p.Status == 503 && p.Code != outcomeUnknown.code) != (p.header.Get("Retry-After") != "") {
			t.Errorf("%v: Retry-After is %q", err, p.header.Get("Retry-After"))
		}
	}
}

// TestInvalidErrors checks that the invalid input of each package is a 422 that
// names the field, without the package's prefix.
func TestInvalidErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&inventory.InvalidError{Field: "limit", Message: "must be less"},
		&tenants.InvalidError{Field: "limit", Message: "must be less"},
		&metered.Error{Kind: metered.ErrInvalid, Field: "limit", Message: "must be less"},
		fmt.Errorf("submit: %w", &ratelimit.InvalidError{Field: "limit", Message: "must be less"}),
	} {
		p := problemOf(err)
		want := fieldErrors{}.with("limit", "must be less")
		if p.Code != invalid.code || !slices.Equal(p.Errors, want) {
			t.Errorf("%T is %s", err, encode(p))
		}
	}
}

// TestRefusalLog checks that the log has the cause of an unknown outcome, which
// may be an outage. A body that was cut off by the stop is not logged.
func TestRefusalLog(t *testing.T) {
	t.Parallel()
	var log recorder
	s := &service{log: slog.New(&log)}
	s.errorResponse(t.Context(), &bodyError{errStopping})
	if len(log.failures) != 0 {
		t.Errorf("a body that the stop cut off: logged %v", log.failures)
	}
	s.errorResponse(t.Context(), fmt.Errorf("%w: %w", holdfast.ErrOutcomeUnknown, context.DeadlineExceeded))
	if len(log.failures) != 1 || !pg.IsOutage(log.failures[0]) {
		t.Errorf("an unknown outcome: logged %v, want an outage", log.failures)
	}
}

// recorder keeps the errors of log records.
type recorder struct {
	slog.Handler
	failures []error
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }

func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			r.failures = append(r.failures, err)
		}
		return true
	})
	return nil
}

// BenchmarkAddItem measures the cost that the package adds to the admission of
// a request, with 64 concurrent callers in one process.
func BenchmarkAddItem(b *testing.B) {
	s := newShop(b)
	s.stock("shirt", `{"stock":1000000000}`)
	s.service.log = slog.New(slog.DiscardHandler)
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r := httptest.NewRequestWithContext(b.Context(), "POST", "/v1/carts/c/items", strings.NewReader(`{"variant_id":"shirt","quantity":1}`))
			r.Header.Set("Authorization", "Bearer "+s.key)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			s.service.ServeHTTP(w, r)
			if w.Code != http.StatusAccepted {
				b.Errorf("answered %d %s", w.Code, w.Body)
				return
			}
		}
	})
}
