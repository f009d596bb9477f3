package live

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast/holdfast/internal/sleep"
)

// closing is why a connection is closed.
type closing struct {
	code   websocket.StatusCode
	reason string
}

// The status codes of RFC 6455 that close connections, and those of this
// protocol.
var (
	goingAway    = closing{websocket.StatusGoingAway, "the service stops"}
	notText      = closing{websocket.StatusUnsupportedData, "messages are text"}
	tooManyNotes = closing{websocket.StatusPolicyViolation, "too many messages that have no effect"}
	tooOld       = closing{4000, "reconnect with a new ticket"}
	keyRevoked   = closing{4001, "the key is not valid any more"}
	// disconnected closes a connection that does not work, without a status.
	disconnected = closing{}
)

// closeTime is how long a client may take to receive the status with which its
// connection is closed, and to respond.
const closeTime = time.Second

// session is one WebSocket connection.
type session struct {
	hub    *Hub
	conn   *websocket.Conn
	holder Holder
	box    *mailbox
	// subscriptions are used by the goroutine that reads only, and after its
	// end.
	subscriptions map[string]*Subscription
	// closing receives why the connection is closed, once. cancel then
	// disconnects a client that does not respond.
	closing chan closing
	cancel  context.CancelFunc
}

// Serve upgrades a request to a WebSocket and serves it until the connection
// ends. The caller has checked the origin of the request and its ticket.
//
// Errors: ErrTenantConnections, ErrConnections and ErrStopped, before anything
// was written. A handshake that is not valid is responded to, and is no error.
func (h *Hub) Serve(w http.ResponseWriter, r *http.Request, holder Holder) error {
	release, err := h.Connect(holder.TenantID)
	if err != nil {
		return err
	}
	defer release()
	conn, err := websocket.Accept(boundedWriter{w}, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return nil //nolint:nilerr // Accept has responded
	}
	conn.SetReadLimit(h.config.Limits.Message)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	s := &session{
		hub: h, conn: conn, holder: holder, box: newMailbox(&h.config.Limits),
		subscriptions: make(map[string]*Subscription), closing: make(chan closing, 1), cancel: cancel,
	}
	if !h.begin(s) {
		_ = conn.Close(goingAway.code, goingAway.reason)
		return nil
	}
	defer h.finish(s)
	s.serve(ctx)
	return nil
}

// sendBuffer bounds what the kernel keeps for a client that does not read, in
// bytes. Linux allows twice as much. By default it would keep megabytes.
const sendBuffer = 128 << 10

// boundedWriter bounds the buffer of the connection that is hijacked from it.
type boundedWriter struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (w boundedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffers, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBuffer) // without it the buffer is larger
	}
	return conn, buffers, err //nolint:wrapcheck // the caller's own error
}

// begin registers a connection, unless the hub has ended.
func (h *Hub) begin(s *session) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return false
	}
	h.running.Add(1)
	h.sessions[s] = struct{}{}
	return true
}

func (h *Hub) finish(s *session) {
	h.mu.Lock()
	delete(h.sessions, s)
	h.mu.Unlock()
	h.running.Done()
}

// serve serves until the connection ends.
func (s *session) serve(ctx context.Context) {
	age := time.AfterFunc(s.hub.config.Limits.Age, func() { s.end(tooOld) })
	defer age.Stop()
	read, pinged := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		s.read(ctx)
	}()
	go func() {
		defer close(pinged)
		s.ping(ctx)
	}()
	why := s.write(ctx)
	if why == disconnected {
		_ = s.conn.CloseNow()
	} else {
		_ = s.conn.Close(why.code, why.reason)
	}
	s.cancel()
	<-read
	<-pinged
	for _, subscription := range s.subscriptions {
		s.hub.leave(subscription)
	}
}

// end closes the connection. The first reason counts. A client that does not
// respond in time is disconnected. It does not wait.
func (s *session) end(why closing) {
	select {
	case s.closing <- why:
		time.AfterFunc(closeTime, s.cancel)
	default:
	}
}

// write writes what is queued until the connection is to be closed, and returns
// why.
func (s *session) write(ctx context.Context) closing {
	heartbeat := time.NewTicker(s.hub.config.Limits.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case why := <-s.closing:
			return why
		default:
		}
		text := heartbeatText
		if f, found := s.box.pop(); found {
			text = f.text
		} else {
			select {
			case why := <-s.closing:
				return why
			case <-ctx.Done():
				return disconnected
			case <-s.box.wake:
				continue
			case <-heartbeat.C:
			}
		}
		within, cancel := context.WithTimeout(ctx, s.hub.config.Limits.Write)
		err := s.conn.Write(within, websocket.MessageText, text)
		cancel()
		if err != nil {
			return disconnected
		}
	}
}

// ping disconnects a client that does not respond to a ping. A ping that cannot
// be written, because a frame is still being written, proves nothing: the write
// of the frame is bounded.
func (s *session) ping(ctx context.Context) {
	ticker := time.NewTicker(s.hub.config.Limits.Ping)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		within, cancel := context.WithTimeout(ctx, s.hub.config.Limits.Write)
		err := s.conn.Ping(within)
		late := within.Err() != nil
		cancel()
		if err != nil && late {
			s.cancel()
			return
		}
	}
}

// read handles the messages of the client. It reads until the connection ends,
// so that the end of ctx always disconnects the client.
func (s *session) read(ctx context.Context) {
	refused := false
	var messages pacer
	for messages.wait(ctx) == nil {
		kind, text, err := s.conn.Read(ctx)
		switch {
		case err != nil:
			s.end(disconnected)
			return
		case refused:
		case kind != websocket.MessageText:
			refused = true
			s.end(notText)
		case !s.handle(text):
			refused = true
			s.end(tooManyNotes)
		}
	}
}

// A client that sends more messages than messageBurst at once, or more than one
// per messageEvery after that, is read more slowly. It may subscribe to all of
// its channels at once.
const (
	messageEvery = 50 * time.Millisecond
	messageBurst = 200
)

// pacer limits a rate by the generic cell rate algorithm.
type pacer struct{ arrival time.Time } // the theoretical arrival time

func (p *pacer) wait(ctx context.Context) error {
	now := time.Now()
	if p.arrival.Before(now) {
		p.arrival = now
	}
	early := p.arrival.Sub(now) - (messageBurst-1)*messageEvery
	p.arrival = p.arrival.Add(messageEvery)
	return sleep.For(ctx, early)
}

// messageJSON is a message of a client.
type messageJSON struct {
	Subscribe   *string `json:"subscribe"`
	Unsubscribe *string `json:"unsubscribe"`
}

// handle handles one message. It reports whether the client reads its error
// frames.
func (s *session) handle(text []byte) bool {
	var m messageJSON
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&m)
	if err != nil || decoder.More() || (m.Subscribe == nil) == (m.Unsubscribe == nil) {
		return s.refuse("", "malformed", `a message is {"subscribe":"<channel>"} or {"unsubscribe":"<channel>"}`)
	}
	if m.Unsubscribe != nil {
		if subscription := s.subscriptions[*m.Unsubscribe]; subscription != nil {
			delete(s.subscriptions, *m.Unsubscribe)
			s.hub.leave(subscription)
		}
		return true
	}
	return s.subscribe(*m.Subscribe)
}

// subscribe subscribes to a channel. To one that is subscribed already, it
// sends a snapshot again.
func (s *session) subscribe(channel string) bool {
	err := s.hub.authorize(s.holder.Scopes, channel)
	if old := s.subscriptions[channel]; err == nil && old != nil {
		delete(s.subscriptions, channel)
		s.hub.leave(old)
	}
	if err == nil && len(s.subscriptions) >= s.hub.config.Limits.Subscriptions {
		err = ErrTooManySubscriptions
	}
	if err == nil {
		var subscription *Subscription
		if subscription, err = s.hub.subscribe(s.box, s.holder.TenantID, channel); err == nil {
			s.subscriptions[channel] = subscription
		}
	}
	switch {
	case err == nil, errors.Is(err, ErrStopped): // the connection is being closed
		return true
	case errors.Is(err, ErrForbidden):
		return s.refuse(channel, "forbidden", "the key lacks the scope of the channel")
	case errors.Is(err, ErrTooManySubscriptions):
		return s.refuse(channel, "too_many_subscriptions", "the connection, the tenant or the service has too many subscriptions")
	default:
		return s.refuse(channel, "unknown_channel", "there is no such channel")
	}
}

// refuse sends an error frame. It reports whether there was room for it.
func (s *session) refuse(channel, code, detail string) bool {
	if len(channel) > channelMax {
		channel = strings.ToValidUTF8(channel[:channelMax], "") + "…"
	}
	text, err := json.Marshal(errorJSON{Channel: channel, Event: errorEvent, Code: code, Detail: detail})
	return err == nil && s.box.note(text)
}
