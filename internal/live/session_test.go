package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/holdfast/holdfast/internal/live"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// serve serves a hub without tickets: every connection has the holder.
func (b *fixture) serve(hub *live.Hub, holder live.Holder) *httptest.Server {
	b.TB.Helper()
	return b.serveOn(hub, holder, func(l net.Listener) net.Listener { return l })
}

// serveOn is serve with a listener that wrap returns.
func (b *fixture) serveOn(hub *live.Hub, holder live.Holder, wrap func(net.Listener) net.Listener) *httptest.Server {
	b.TB.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := hub.Serve(w, r, holder); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	server.Listener = &smallBuffers{Listener: wrap(server.Listener)}
	server.Start()
	b.TB.Cleanup(server.Close)
	return server
}

// smallBuffers makes the kernel buffer little for the connections that it
// accepts, once it is on. It hides that they are of TCP, so that the hub keeps
// the size.
type smallBuffers struct {
	net.Listener
	on atomic.Bool
}

func (l *smallBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok && l.on.Load() {
		_ = tcp.SetWriteBuffer(4 << 10)
		conn = struct{ net.Conn }{tcp}
	}
	return conn, err
}

func (b *fixture) holder(scopes ...tenants.Scope) live.Holder {
	key := b.newKey(scopes...)
	return live.Holder{TenantID: key.TenantID, KeyID: key.KeyID, Scopes: key.Scopes}
}

// client is a WebSocket connection.
type client struct {
	t    testing.TB
	conn *websocket.Conn
}

func dial(t testing.TB, server *httptest.Server) *client {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), server.URL, nil) //nolint:bodyclose // the response has no body
	pgtest.Must(t, err)
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &client{t: t, conn: conn}
}

func (c *client) say(text string) {
	c.t.Helper()
	pgtest.Must(c.t, c.conn.Write(c.t.Context(), websocket.MessageText, []byte(text)))
}

func (c *client) subscribe(channel string) {
	c.t.Helper()
	c.say(fmt.Sprintf(`{"subscribe":%q}`, channel))
}

// read returns the next message that is no heartbeat.
func (c *client) read() string {
	c.t.Helper()
	for {
		text, err := c.next()
		pgtest.Must(c.t, err)
		if text != heartbeat {
			return text
		}
	}
}

const heartbeat = `{"event":"heartbeat"}`

func (c *client) next() (string, error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	_, text, err := c.conn.Read(ctx)
	return string(text), err
}

// want reads messages and expects them.
func (c *client) want(messages ...string) {
	c.t.Helper()
	for _, message := range messages {
		if diff := cmp.Diff(message, c.read()); diff != "" {
			c.t.Fatalf("(-want +got)\n%s", diff)
		}
	}
}

// wantClosed reads until the connection is closed, and expects the status.
func (c *client) wantClosed(code websocket.StatusCode, reason string) {
	c.t.Helper()
	for {
		_, err := c.next()
		if err == nil {
			continue
		}
		var closed websocket.CloseError
		if !errorAs(err, &closed) || closed.Code != code || closed.Reason != reason {
			c.t.Errorf("closed with %v, want %d %q", err, code, reason)
		}
		return
	}
}

func errorAs(err error, to *websocket.CloseError) bool {
	to.Code = websocket.CloseStatus(err)
	if to.Code < 0 {
		return false
	}
	_, text, _ := strings.Cut(err.Error(), `reason = "`)
	to.Reason, _, _ = strings.Cut(text, `"`)
	return true
}

// The protocol, message by message.
func TestProtocol(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	config := b.config()
	config.Limits.Subscriptions = 2
	config.Sampled = []live.Sampled{{Channel: "lanes", Scope: tenants.ScopeOps, Every: time.Hour, Sample: b.nothing}}
	hub, _ := b.run(config)
	c := dial(t, b.serve(hub, b.holder(tenants.ScopeCart)))
	c.subscribe(counter)
	c.want(`{"channel":"projection.test.count.a","event":"snapshot","version":0,"payload":null}`)
	b.send(b.count(b.tenant, 1), b.count(b.tenant, 3))
	c.want(
		`{"channel":"projection.test.count.a","event":"delta","version":1,"payload":{"n":1}}`,
		`{"channel":"projection.test.count.a","event":"delta","first_version":2,"version":4,"payload":{"n":4}}`,
	)
	c.subscribe(counter)
	c.want(`{"channel":"projection.test.count.a","event":"snapshot","version":4,"payload":{"n":4}}`)
	c.subscribe("projection.test.count.b")
	c.want(`{"channel":"projection.test.count.b","event":"snapshot","version":0,"payload":null}`)
	refuse := func(channel, code, detail string) {
		t.Helper()
		c.want(fmt.Sprintf(`{"channel":%q,"event":"error","code":%q,"detail":%q}`, channel, code, detail))
	}
	c.subscribe("projection.test.count.c")
	refuse("projection.test.count.c", "too_many_subscriptions", "the connection, the tenant or the service has too many subscriptions")
	c.subscribe("projection.outcomes.rate.all")
	refuse("projection.outcomes.rate.all", "forbidden", "the key lacks the scope of the channel")
	c.subscribe("lanes")
	refuse("lanes", "forbidden", "the key lacks the scope of the channel")
	for _, unknown := range []string{"", "projection.test", "orders"} {
		c.subscribe(unknown)
		refuse(unknown, "unknown_channel", "there is no such channel")
	}
	for _, malformed := range []string{"", "x", "{}", "[]", "null", `{"subscribe":1}`, `{"subscribe":"a","unsubscribe":"a"}`, `{"subscribe":null}`, `{"subscribe":"a"}{}`, `{"other":"a"}`} {
		c.say(malformed)
		c.want(`{"channel":"","event":"error","code":"malformed","detail":"a message is {\"subscribe\":\"\u003cchannel\u003e\"} or {\"unsubscribe\":\"\u003cchannel\u003e\"}"}`)
	}
	c.say(`{"unsubscribe":"projection.test.count.a"}`)
	c.say(`{"unsubscribe":"projection.test.count.a"}`)
	c.subscribe("projection.test.count.c")
	c.want(`{"channel":"projection.test.count.c","event":"snapshot","version":0,"payload":null}`)
	if load := hub.Load(); load.Subscribers != 2 || load.Sessions != 1 || load.Connections != 1 {
		t.Errorf("%+v; want two subscribers", load)
	}
	pgtest.Must(t, c.conn.Close(websocket.StatusNormalClosure, ""))
	pgtest.Until(t, "nothing is kept", func() bool { return hub.Load() == live.Load{} })

	operator := dial(t, b.serve(hub, b.holder(tenants.ScopeOps)))
	operator.subscribe("lanes")
	operator.want(`{"channel":"lanes","event":"snapshot","version":1,"payload":null}`)
	operator.subscribe("projection.outcomes.rate.all")
	operator.want(`{"channel":"projection.outcomes.rate.all","event":"snapshot","version":0,"payload":null}`)
}

// Messages that are no text, too large, or arrive too often without being read
// end the connection.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	hub, _ := b.run(b.config())
	server := b.serve(hub, b.holder(tenants.ScopeCart))
	binary := dial(t, server)
	pgtest.Must(t, binary.conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"subscribe":"a"}`)))
	binary.wantClosed(websocket.StatusUnsupportedData, "messages are text")
	large := dial(t, server)
	large.say(`{"subscribe":"` + strings.Repeat("x", 4<<10) + `"}`)
	if _, err := large.next(); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("a large message: %v", err)
	}
	pgtest.Until(t, "nothing is kept", func() bool { return hub.Load() == live.Load{} })
}

// A client may send 200 messages at once, and 20 per second after that.
func TestMessagesArePaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for i, waited := range live.Paces(t.Context(), 300) {
			want := time.Duration(0)
			if i >= 200 {
				want = 50 * time.Millisecond
			}
			if waited != want {
				t.Fatalf("message %d waited %s, want %s", i, waited, want)
			}
		}
	})
}

// A connection ends at its age, and when its key is revoked or has moved. Others with a
// valid key stay.
func TestConnectionEnds(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	config := b.config()
	config.Limits.Age = 50 * time.Millisecond
	aging, _ := b.run(config)
	dial(t, b.serve(aging, b.holder(tenants.ScopeCart))).wantClosed(4000, "reconnect with a new ticket")

	config = b.config()
	config.Limits.KeyCheck = 20 * time.Millisecond
	hub, _ := b.run(config)
	holder := b.holder(tenants.ScopeCart)
	gone, err := tenants.Ensure(t.Context(), b.DB, "gone")
	pgtest.Must(t, err)
	_, key, err := tenants.CreateKey(t.Context(), b.DB, gone.TenantID, "test", tenants.AllScopes())
	pgtest.Must(t, err)
	elsewhere := live.Holder{TenantID: gone.TenantID, KeyID: key.KeyID, Scopes: key.Scopes}
	revoked, moved, valid := dial(t, b.serve(hub, holder)), dial(t, b.serve(hub, elsewhere)), dial(t, b.serve(hub, b.holder(tenants.ScopeCart)))
	pgtest.Exec(t, b.DB, `UPDATE tenant_state SET state = 'gone' WHERE tenant_id = $1`, gone.TenantID)
	_, err = tenants.RevokeKey(t.Context(), b.DB, holder.TenantID, holder.KeyID)
	pgtest.Must(t, err)
	revoked.wantClosed(4001, "the key is not valid any more")
	moved.wantClosed(4001, "the key is not valid any more")
	valid.subscribe(counter)
	valid.want(`{"channel":"projection.test.count.a","event":"snapshot","version":0,"payload":null}`)
}

// A client receives heartbeats. One that does not respond to pings, because it
// does not read, is disconnected.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	b := newFixture(t)
	config := b.config()
	config.Limits.Heartbeat, config.Limits.Ping = 5*time.Millisecond, 10*time.Millisecond
	hub, _ := b.run(config)
	c := dial(t, b.serve(hub, b.holder(tenants.ScopeCart)))
	for range 20 {
		if text, err := c.next(); text != heartbeat || err != nil {
			t.Fatalf("received %q, %v", text, err)
		}
	}
	pgtest.Must(t, c.conn.Close(websocket.StatusNormalClosure, ""))

	config.Limits.Heartbeat, config.Limits.Write = time.Hour, 200*time.Millisecond
	strict, _ := b.run(config)
	silent(t, b.serve(strict, b.holder(tenants.ScopeCart))) // which the hub counts before it accepts it
	pgtest.Until(t, "the silent client is disconnected", func() bool { return strict.Load() == live.Load{} })
}

// silent opens a connection, subscribes to the counter, and never reads again.
func silent(t testing.TB, server *httptest.Server) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
	pgtest.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	pgtest.Must(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	pgtest.Must(t, err)
	response, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	pgtest.Must(t, err)
	pgtest.Must(t, response.Body.Close())
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answered %s", response.Status)
	}
	message := fmt.Sprintf(`{"subscribe":%q}`, counter)
	_, err = conn.Write(append([]byte{0x81, 0x80 | byte(len(message)), 0, 0, 0, 0}, message...))
	pgtest.Must(t, err)
	return conn
}

// The end of a hub closes all connections, also of clients that do not respond,
// and leaves nothing behind.
func TestStop(t *testing.T) { //nolint:paralleltest // goroutines of other tests would be found
	b := newFixture(t)
	before := goleak.IgnoreCurrent()
	config := b.config()
	config.Limits.Write, config.Limits.Ping = time.Hour, time.Hour // neither disconnects a client
	hub, stop := b.run(config)
	server := b.serve(hub, b.holder(tenants.ScopeCart))
	var clients []*client
	for range 5 {
		c := dial(t, server)
		c.subscribe(counter)
		c.read()
		clients = append(clients, c)
	}
	unresponsive := silent(t, server)
	pgtest.Until(t, "all are connected", func() bool { return hub.Load().Subscribers == 6 })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, c := range clients {
			c.wantClosed(websocket.StatusGoingAway, "the service stops")
		}
	}()
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	select {
	case <-stopped:
	case <-time.After(5 * time.Minute):
		t.Fatal("a client that does not respond keeps the hub from its end")
	}
	<-closed
	pgtest.Until(t, "nothing is left", func() bool {
		load := hub.Load()
		return load.Sessions+load.Connections+load.Subscribers == 0
	})
	_, response, err := websocket.Dial(t.Context(), server.URL, nil) //nolint:bodyclose // Dial has read it
	if err == nil || response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a new connection: %v", err)
	}
	_ = unresponsive.Close()
	server.Close()
	goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"))
}

// received decodes a frame that a client received.
func received(t testing.TB, text string) live.Frame {
	t.Helper()
	var f struct {
		Channel, Event string
		FirstVersion   int64 `json:"first_version"`
		Version        int64
		Payload        json.RawMessage
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if f.FirstVersion == 0 {
		f.FirstVersion = f.Version
	}
	return live.Frame{Channel: f.Channel, Event: f.Event, First: f.FirstVersion, Version: f.Version, Payload: f.Payload}
}
