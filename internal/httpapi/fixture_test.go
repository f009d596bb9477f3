package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/checkouts/callback"
	"github.com/holdfast/holdfast/internal/ops"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/queues/hot"
	"github.com/holdfast/holdfast/queues/normal"
)

// shop is a served API on a new database, with one tenant. No request is
// decided until the test calls decide or serveLanes.
type shop struct {
	t       testing.TB
	db      *pgxpool.Pool
	tenant  tenants.Tenant
	key     string // has every scope
	service *service
	server  *httptest.Server
	lanes   []*queues.Lane
	logged  pgtest.Log
	log     *slog.Logger
	config  holdfast.Config // of the client
	direct  bool            // the client decides for callers that wait
	// answering counts the calls that the API is answering.
	answering atomic.Int64
}

// newShop opens a shop without metered commands. Each of its responses is
// compared with the document.
func newShop(t testing.TB) *shop {
	t.Helper()
	return openShop(t, pgtest.New(t), holdfast.Config{})
}

// openShop opens a shop whose client has the bounds of config.
func openShop(t testing.TB, db *pgxpool.Pool, config holdfast.Config) *shop {
	t.Helper()
	s := &shop{t: t, db: db}
	s.tenant, s.key = s.newTenant("shop")

	secret, err := callback.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwBjK2YLpzX0k=")
	s.must(err)
	config.Checkouts.Validator, err = callback.New(callback.Config{Secret: secret})
	s.must(err)
	s.log = slog.New(slog.NewTextHandler(&s.logged, nil))
	hub := newHub(t, s.db, s.log)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = hub.Run(ctx) })

	keys := tenants.NewAuthenticator(s.db, tenants.Config{})
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") })
	handler, err := New(ctx, Config{
		Pool: s.db, Keys: keys, Metered: config.Intake.Metered, Live: &Live{Hub: hub, Origins: []string{friend}}, Metrics: metrics, Log: s.log,
		Overview: ops.NewReader(s.db, ops.Config{Arrivals: true}).Read,
	})
	s.must(err)
	s.service = handler.(*service)
	s.precompute()
	s.serve(s.db, config)
	s.server = httptest.NewServer(s.checked(handler))
	t.Cleanup(func() { s.server.Close(); stop(); running.Wait() })

	hotLane, err := hot.NewLane(s.db, slog.New(slog.DiscardHandler), queues.LaneConfig{})
	s.must(err)
	normalLane, err := normal.NewLane(s.db, slog.New(slog.DiscardHandler), queues.LaneConfig{})
	s.must(err)
	s.lanes = []*queues.Lane{hotLane, normalLane}
	return s
}

// serve gives the API a new client on db, which runs until stop is called or
// the test ends. It decides nothing, unless decideDirectly is called.
func (s *shop) serve(db *pgxpool.Pool, config holdfast.Config) (stop func()) {
	s.t.Helper()
	s.config = config
	config.Log, config.NoDirect = s.log, !s.direct
	config.NoLanes, config.NoMaintenance, config.NoDetector, config.NoProjections = true, true, true, true
	client, err := holdfast.New(db, &config)
	s.must(err)
	s.must(client.Start(s.t.Context()))
	stop = sync.OnceFunc(func() { _ = client.Stop(context.Background()) })
	s.t.Cleanup(stop)
	s.service.client, s.service.pool = client, db
	return stop
}

// serveChanged is serve with a changed configuration.
func (s *shop) serveChanged(db *pgxpool.Pool, change func(*holdfast.Config)) (stop func()) {
	s.t.Helper()
	config := s.config
	change(&config)
	return s.serve(db, config)
}

func (s *shop) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) newTenant(name string) (tenants.Tenant, string) {
	s.t.Helper()
	tenant, err := tenants.Ensure(s.t.Context(), s.db, name)
	s.must(err)
	return tenant, s.newKey(tenant, tenants.AllScopes()...)
}

func (s *shop) newKey(tenant tenants.Tenant, scopes ...tenants.Scope) string {
	s.t.Helper()
	plaintext, _, err := tenants.CreateKey(s.t.Context(), s.db, tenant.TenantID, "test", scopes)
	s.must(err)
	return plaintext
}

// decide makes both lanes decide the queued requests.
func (s *shop) decide() {
	s.t.Helper()
	for _, lane := range s.lanes {
		_, err := lane.Tick(s.t.Context())
		s.must(err)
	}
}

// serveLanes runs both lanes until the test ends.
func (s *shop) serveLanes() {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, config := range []func(*pgxpool.Pool, *slog.Logger, queues.LaneConfig) (*queues.Lane, error){hot.NewLane, normal.NewLane} {
		lane, err := config(s.db, slog.New(slog.DiscardHandler), queues.LaneConfig{TickEvery: 20 * time.Millisecond})
		s.must(err)
		running.Go(func() { _ = lane.Run(ctx) })
	}
	s.t.Cleanup(func() { stop(); running.Wait() })
}

// reply is a response that was read to its end.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// send sends a request. path is sent unchanged; headers are name, value, name,
// value.
func (s *shop) send(method, path string, body io.Reader, headers ...string) reply {
	s.t.Helper()
	r, err := s.try(method, path, body, headers...)
	s.must(err)
	return r
}

func (s *shop) try(method, path string, body io.Reader, headers ...string) (reply, error) {
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.server.URL+path, body)
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Del(headers[i])
		if headers[i+1] != "" {
			request.Header.Set(headers[i], headers[i+1])
		}
	}
	client := &http.Client{
		Transport:     s.server.Client().Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	read, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, read}, err
}

// call sends a request with a JSON body ("" for none) and expects the status.
func (s *shop) call(status int, method, path, body string, headers ...string) reply {
	s.t.Helper()
	var sent io.Reader
	if body != "" {
		sent = strings.NewReader(body)
	}
	r := s.send(method, path, sent, headers...)
	if r.status != status {
		s.t.Fatalf("%s %s %.500s: answered %d, want %d: %s", method, path, body, r.status, status, r.body)
	}
	return r
}

// refused sends a request and expects a problem.
func (s *shop) refused(k kind, method, path, body string, headers ...string) problem {
	s.t.Helper()
	return s.isProblem(s.call(k.status, method, path, body, headers...), k)
}

func (s *shop) isProblem(r reply, k kind) (p problem) {
	s.t.Helper()
	r.decode(s.t, &p)
	if r.status != k.status || p.Code != k.code || p.Status != r.status || r.header.Get("Content-Type") != "application/problem+json" {
		s.t.Errorf("answered %d %s %s, want the problem %s", r.status, r.header.Get("Content-Type"), r.body, k.code)
	}
	return p
}

// stock sets a stock.
func (s *shop) stock(variant string, fields string) {
	s.t.Helper()
	s.call(200, "PUT", "/v1/stocks/"+variant, fields)
}

// add adds units to a cart and returns the id of the request.
func (s *shop) add(cart, variant string, quantity int) string {
	s.t.Helper()
	r := s.call(202, "POST", "/v1/carts/"+cart+"/items", fmt.Sprintf(`{"variant_id":%q,"quantity":%d}`, variant, quantity))
	return r.text(s.t, "request_id")
}

func (r reply) decode(t testing.TB, to any) {
	t.Helper()
	if err := json.Unmarshal(r.body, to); err != nil {
		t.Fatalf("decode %q: %v", r.body, err)
	}
}

func (r reply) object(t testing.TB) (object map[string]any) {
	t.Helper()
	r.decode(t, &object)
	return object
}

// text returns a field of the response.
func (r reply) text(t testing.TB, field string) string {
	t.Helper()
	value, ok := r.object(t)[field].(string)
	if !ok {
		t.Fatalf("%s is not a text in %s", field, r.body)
	}
	return value
}

// rows returns the rows of a statement as text.
func (s *shop) rows(sql string, args ...any) []string {
	s.t.Helper()
	rows, err := s.db.Query(s.t.Context(), sql, args...)
	s.must(err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	s.must(err)
	return list
}

// count returns the number that a statement returns.
func (s *shop) count(sql string, args ...any) (n int64) {
	s.t.Helper()
	s.must(s.db.QueryRow(s.t.Context(), sql, args...).Scan(&n))
	return n
}

// written counts the rows that requests write, without wakes, which are
// inserted later.
func (s *shop) written() (n int64) {
	return s.count(`SELECT (SELECT count(*) FROM reservation_requests) + (SELECT count(*) FROM inventory_stocks)
		+ (SELECT count(*) FROM reservations) + (SELECT count(*) FROM audit_log) + (SELECT count(*) FROM idempotency_keys)
		+ (SELECT count(*) FROM hot_variants) + (SELECT count(*) FROM checkouts)`)
}

// due moves the deadlines of a cart's holds into the past.
func (s *shop) due(cart string) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), `
		UPDATE reservations
		SET first_held_at = first_held_at - interval '1 hour', held_at = held_at - interval '1 hour', expires_at = expires_at - interval '1 hour'
		WHERE holder_id = $1 AND status = 'held'`, cart)
	s.must(err)
}
