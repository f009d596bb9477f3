package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast/holdfast/internal/frames"
	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/secrettest"
	"github.com/holdfast/holdfast/internal/tenants"
	"github.com/holdfast/holdfast/projections"
)

// friend is an origin that the API of a test allows.
const friend = "https://shop.example:8443"

func newHub(t testing.TB, db *pgxpool.Pool, log *slog.Logger) *live.Hub {
	t.Helper()
	hub, err := live.New(live.Config{
		Pool: db, Log: log, Public: []string{"projection.stocks.availability."}, Limits: live.Limits{TenantConnections: 5},
		Snapshots: projections.Snapshots, Versions: projections.Versions,
	})
	if err != nil {
		t.Fatal(err)
	}
	return hub
}

// ticket makes a ticket with a key.
func (s *shop) ticket(key string) string {
	s.t.Helper()
	return s.call(201, "POST", "/v1/live/tickets", "", "Authorization", "Bearer "+key).text(s.t, "ticket")
}

// unchecked serves the API without comparing its responses with the document,
// because a live connection has none.
func (s *shop) unchecked() *httptest.Server {
	server := httptest.NewUnstartedServer(s.service)
	server.Config.ReadHeaderTimeout, server.Config.ReadTimeout = 200*time.Millisecond, 200*time.Millisecond
	server.Start()
	s.t.Cleanup(server.Close)
	return server
}

func (s *shop) connect(server *httptest.Server, ticket string, headers ...string) (*websocket.Conn, int) {
	s.t.Helper()
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Add(headers[i], headers[i+1])
	}
	url := server.URL + LivePath + "?ticket=" + ticket
	conn, response, err := websocket.Dial(s.t.Context(), url, &websocket.DialOptions{HTTPHeader: header}) //nolint:bodyclose // Dial has read it
	if response == nil {
		s.t.Fatal(err)
	}
	if err == nil {
		s.t.Cleanup(func() { _ = conn.CloseNow() })
	}
	return conn, response.StatusCode
}

// exchange sends a message and reads one.
func (s *shop) exchange(conn *websocket.Conn, message string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	s.must(conn.Write(ctx, websocket.MessageText, []byte(message)))
	return s.next(conn)
}

func (s *shop) next(conn *websocket.Conn) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	_, text, err := conn.Read(ctx)
	s.must(err)
	return string(text)
}

const (
	availability = "projection.stocks.availability.shirt"
	subscribing  = `{"subscribe":"` + availability + `"}`
)

// setAvailability writes the state of a projection and sends a delta.
func (s *shop) setAvailability(tenant tenants.Tenant, version int64, state string) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), `
		INSERT INTO projection_snapshots (tenant_id, projection_name, key, state, version)
		VALUES ($1, 'stocks.availability', 'shirt', $2, $3)
		ON CONFLICT (tenant_id, projection_name, key) DO UPDATE SET state = excluded.state, version = excluded.version`,
		tenant.TenantID, state, version)
	s.must(err)
	s.must(frames.Send(s.t.Context(), s.db, []frames.Frame{{
		TenantID: tenant.TenantID, Channel: availability, Event: "delta", First: version, Version: version, Payload: json.RawMessage(state),
	}}))
}

// A ticket of any key opens a connection, which receives what its key gives
// access to, of its own tenant. It outlives the time that the server allows for
// a request.
func TestLive(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	server := s.unchecked()
	other, otherKey := s.newTenant("other")
	conn, status := s.connect(server, s.ticket(s.newKey(s.tenant, tenants.ScopeStock)))
	if status != http.StatusSwitchingProtocols {
		t.Fatalf("answered %d", status)
	}
	theirs, _ := s.connect(server, s.ticket(otherKey))
	for _, c := range []*websocket.Conn{conn, theirs} {
		if got := s.exchange(c, subscribing); got != `{"channel":"`+availability+`","event":"snapshot","version":0,"payload":null}` {
			t.Errorf("received %s", got)
		}
	}
	s.setAvailability(other, 1, `{"stock":7}`)
	s.setAvailability(s.tenant, 1, `{"stock":1}`)
	for c, want := range map[*websocket.Conn]string{conn: `{"stock":1}`, theirs: `{"stock":7}`} {
		if got := s.next(c); got != `{"channel":"`+availability+`","event":"delta","version":1,"payload":`+want+`}` {
			t.Errorf("received %s", got)
		}
	}
	if got := s.exchange(conn, `{"subscribe":"projection.outcomes.rate.all"}`); !strings.Contains(got, `"code":"forbidden"`) {
		t.Errorf("received %s", got)
	}
	if got := s.exchange(theirs, `{"subscribe":"projection.outcomes.rate.all"}`); !strings.Contains(got, `"event":"snapshot"`) {
		t.Errorf("received %s", got)
	}
	late := time.NewTimer(500 * time.Millisecond)
	<-late.C
	if got := s.exchange(conn, subscribing); got != `{"channel":"`+availability+`","event":"snapshot","version":1,"payload":{"stock":1}}` {
		t.Errorf("received %s", got)
	}
}

// upgrade are the headers of a handshake.
var upgrade = []string{
	"Connection", "keep-alive, Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==",
}

// with returns the headers of a handshake with others.
func with(headers ...string) []string { return append(slices.Clone(upgrade), headers...) }

// Requests that may not connect get a problem, and use no ticket up unless they
// present it.
func TestLiveRefuses(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	good := s.ticket(s.key)
	path := "/v1/live?ticket=" + good
	for _, tc := range []struct {
		kind    kind
		path    string
		headers []string
	}{
		{upgradeRequired, path, nil},
		{upgradeRequired, path, with("Connection", "close")},
		{upgradeRequired, path, with("Sec-WebSocket-Version", "8")},
		{malformedUpgrade, path, with("Sec-WebSocket-Key", "")},
		{originRefused, path, with("Origin", "https://evil.example")},
		{originRefused, path, with("Origin", "https://evil.example", "X-Forwarded-Host", "evil.example")},
		{originRefused, path, with("Origin", "null")},
		{originRefused, path, with("Origin", friend+".evil.example")},
		{ticketRefused, "/v1/live", upgrade},
		{ticketRefused, "/v1/live?ticket=", upgrade},
		{ticketRefused, path + "&ticket=" + good, upgrade},
		{ticketRefused, path + "x", upgrade},
		{ticketRefused, "/v1/live?ticket=" + s.key, upgrade},
	} {
		r := s.call(tc.kind.status, "GET", tc.path, "", tc.headers...)
		if p := s.isProblem(r, tc.kind); p.Detail != tc.kind.detail {
			t.Errorf("%s: %s", tc.kind.code, p.Detail)
		}
		if tc.kind == upgradeRequired && r.header.Get("Upgrade") != "websocket" {
			t.Error("426 lacks the header Upgrade")
		}
	}
	s.refused(methodNotAllowed, "POST", "/v1/live", "")
	s.refused(unauthorized, "POST", "/v1/live/tickets", "", "Authorization", "")

	server := s.unchecked()
	own := "http://" + server.Listener.Addr().String()
	for _, headers := range [][]string{{"Origin", own}, {"Origin", strings.ToUpper(own[:4]) + own[4:]}, {"Origin", friend}, {"Authorization", "Bearer nonsense"}} {
		if _, status := s.connect(server, s.ticket(s.key), headers...); status != http.StatusSwitchingProtocols {
			t.Errorf("%s: answered %d", headers, status)
		}
	}
	if _, status := s.connect(server, good); status != http.StatusSwitchingProtocols {
		t.Errorf("the ticket of refused requests: answered %d", status)
	}
	if _, status := s.connect(server, good); status != http.StatusUnauthorized {
		t.Errorf("a used ticket: answered %d", status)
	}
	if _, status := s.connect(server, s.ticket(s.key)); status != http.StatusTooManyRequests {
		t.Errorf("a sixth connection of the tenant: answered %d", status)
	}
	expired := s.ticket(s.key)
	_, err := s.db.Exec(t.Context(), `UPDATE live_tickets SET expires_at = clock_timestamp() - interval '1 millisecond'`)
	s.must(err)
	if _, status := s.connect(server, expired); status != http.StatusUnauthorized {
		t.Errorf("an expired ticket: answered %d", status)
	}
}

// Of several processes that are presented one ticket at once, one accepts it.
func TestTicketIsGoodOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	one, two := s.unchecked(), s.unchecked()
	for range 4 {
		ticket := s.ticket(s.key)
		var accepted, refused atomic.Int64
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				url := []string{one.URL, two.URL}[i%2] + LivePath + "?ticket=" + ticket
				conn, response, err := websocket.Dial(t.Context(), url, nil) //nolint:bodyclose // Dial has read it
				switch {
				case err == nil:
					accepted.Add(1)
					_ = conn.Close(websocket.StatusNormalClosure, "")
				case response != nil && response.StatusCode == http.StatusUnauthorized:
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		all.Wait()
		if accepted.Load() != 1 || refused.Load() != 5 {
			t.Errorf("%d accepted and %d refused the ticket", accepted.Load(), refused.Load())
		}
	}
}

// A ticket's plaintext is in the response that made it, and nowhere else.
func TestTicketIsNowhere(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	exported := spans()
	first := s.call(201, "POST", "/v1/live/tickets", "", keyHeader, "ticket")
	golden(t, "live_ticket", reply{first.status, first.header, []byte(strings.ReplaceAll(string(first.body), first.text(t, "ticket"), "<ticket>"))})
	again := s.call(201, "POST", "/v1/live/tickets", "", keyHeader, "ticket")
	golden(t, "live_ticket_replayed", again)
	tickets := []string{first.text(t, "ticket"), s.ticket(s.key), s.ticket(s.key)}
	var seen strings.Builder
	record := func(r reply) { fmt.Fprintln(&seen, r.status, r.header, string(r.body)) }
	record(again)
	record(s.call(426, "GET", "/v1/live?ticket="+tickets[0], ""))
	record(s.call(403, "GET", "/v1/live?ticket="+tickets[0], "", with("Origin", "https://evil.example")...))
	conn, _ := s.connect(s.unchecked(), tickets[1])
	fmt.Fprintln(&seen, s.exchange(conn, subscribing))
	record(s.call(401, "GET", "/v1/live?ticket="+tickets[1], "", upgrade...))
	s.lose()
	record(s.call(503, "GET", "/v1/live?ticket="+tickets[2], "", upgrade...))
	for _, line := range s.dump() {
		fmt.Fprintln(&seen, line)
	}
	fmt.Fprintln(&seen, s.logged.String())
	for _, span := range exported.GetSpans() {
		fmt.Fprintln(&seen, span.Name, span.Attributes, span.Events, span.Status)
	}
	text := seen.String()
	secrettest.AssertAbsent(t, text, tickets...)
	for _, want := range []string{"live_tickets: ", "idempotency_keys: ", "a request was not served", "httpapi.connect_live", "httpapi.mint_live_ticket"} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing was captured of %s", want)
		}
	}
}

// A program that stops closes live connections, and refuses others.
func TestLiveStops(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	hub := newHub(t, s.db, slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	s.service.live = &Live{Hub: hub}
	server := s.unchecked()
	conn, _ := s.connect(server, s.ticket(s.key))
	s.exchange(conn, subscribing)
	stop()
	_, _, err := conn.Read(t.Context())
	if closed, ok := errors.AsType[websocket.CloseError](err); !ok || closed.Code != websocket.StatusGoingAway {
		t.Errorf("closed with %v", err)
	}
	s.must(<-ended)
	if _, status := s.connect(server, s.ticket(s.key)); status != http.StatusServiceUnavailable {
		t.Errorf("after the end: answered %d", status)
	}
}
