package httpapi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
)

// wireTimeout is the longest time that a test waits for an answer, or for the
// end of a connection.
const wireTimeout = 2 * time.Minute

// never is a limit that no test reaches.
const never = time.Hour

// serveWire serves the shop's API on TCP connections, without a recorder.
func (s *shop) serveWire(limits Limits, change ...func(*http.Server)) {
	s.t.Helper()
	s.server.Close()
	s.service.limits = limits.withDefaults()
	s.server = httptest.NewUnstartedServer(s.service)
	for _, c := range change {
		c(s.server.Config)
	}
	s.server.Start()
	s.t.Cleanup(s.server.Close)
}

// wire is one connection to the server.
type wire struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (s *shop) dial() *wire {
	s.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", s.server.Listener.Addr().String())
	s.must(err)
	s.t.Cleanup(func() { _ = conn.Close() })
	s.must(conn.SetDeadline(time.Now().Add(wireTimeout)))
	return &wire{conn, s.t, bufio.NewReader(conn)}
}

// head returns the head of a request with the shop's key. lines are header
// fields.
func (s *shop) head(call string, lines ...string) string {
	return rawHead(call, append([]string{"Authorization: Bearer " + s.key}, lines...)...)
}

func rawHead(call string, lines ...string) string {
	return call + " HTTP/1.1\r\nHost: shop\r\n" + strings.Join(append(lines, "\r\n"), "\r\n")
}

func (w *wire) write(text string) {
	w.t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		w.t.Fatal(err)
	}
}

// answer reads one answer.
func (w *wire) answer() reply {
	w.t.Helper()
	r, err := w.tryAnswer()
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	return r
}

func (w *wire) tryAnswer() (reply, error) {
	response, err := http.ReadResponse(w.r, nil)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	header := response.Header
	if response.Close { // ReadResponse removes the field
		header.Set("Connection", "close")
	}
	return reply{response.StatusCode, header, body}, err
}

// isEnded waits for the server to close the connection.
func (w *wire) isEnded() error {
	n, err := io.Copy(io.Discard, w.r)
	if n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%d more bytes, then %w", n, err)
	}
	return nil
}

const declared = "Content-Length: 100"

// TestAnswersBeforeTheBody makes calls that are answered without their body,
// which it never sends. There is no time limit for bodies here, so an answer
// did not wait for one.
func TestAnswersBeforeTheBody(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	s.serveWire(Limits{BodyTime: never, UploadWindow: never, Linger: 50 * time.Millisecond}, func(server *http.Server) {
		server.DisableGeneralOptionsHandler = true
		server.ReadTimeout = time.Second
	})
	before := s.written()
	answered := map[string]*wire{}
	for _, tc := range []struct {
		name, head string
		status     int
	}{
		{"no key", rawHead("POST /v1/carts/c/items", declared), 401},
		{"wrong key", rawHead("POST /v1/carts/c/items", "Authorization: Bearer hf_nonsense", declared), 401},
		{"no key, chunked", rawHead("POST /v1/carts/c/items", "Transfer-Encoding: chunked"), 401},
		{"no key, large", rawHead("POST /v1/carts/c/items", "Content-Length: 60000000"), 401},
		{"no key, offered", rawHead("POST /v1/carts/c/items", "Expect: 100-continue", declared), 401},
		{"no key, PUT", rawHead("PUT /v1/stocks/shirt", declared), 401},
		{"no key, PATCH", rawHead("PATCH /v1/carts/c/items/shirt", declared), 401},
		{"no key, DELETE", rawHead("DELETE /v1/carts/c", declared), 401},
		{"no key, import", rawHead("POST /v1/stocks/import", "Content-Type: text/csv", declared), 401},
		{"another expectation", rawHead("POST /v1/carts/c/items", "Expect: nothing", declared), 417},
		{"no such path", rawHead("POST /nothing", declared), 404},
		{"no such method", rawHead("POST /v1/carts/c", declared), 405},
		{"OPTIONS", rawHead("OPTIONS /v1/carts/c", declared), 204},
		{"OPTIONS of all", rawHead("OPTIONS *", declared), 404},
		{"CONNECT", rawHead("CONNECT shop:80", declared), 405},
		{"too large", s.head("POST /v1/carts/c/items", "Content-Length: 65537"), 413},
		{"import too large", s.head("POST /v1/stocks/import", "Content-Type: text/csv", "Content-Length: 67108865"), 413},
		{"media type", s.head("POST /v1/carts/c/items", "Content-Type: text/plain", declared), 415},
		{"import's media type", s.head("POST /v1/stocks/import", "Content-Type: text/plain", declared), 415},
		{"bad path", s.head("PATCH /v1/carts/c/items/%00", declared), 422},
		{"DELETE", s.head("DELETE /v1/carts/c", declared), 200},
		{"GET", s.head("GET /v1/carts/c", declared), 200},
		{"HEAD", s.head("GET /v1/carts/c", declared), 200},
		{"GET chunked", s.head("GET /v1/carts/c", "Transfer-Encoding: chunked"), 200},
		{"probe", rawHead("GET /livez", declared), 200},
		{"page", rawHead("GET /docs", declared), 200},
		{"document", rawHead("GET /openapi.json", declared), 200},
		{"metrics", rawHead("GET /metrics", declared), 200},
	} {
		w := s.dial()
		w.write(tc.head)
		r, err := w.tryAnswer()
		if err != nil || r.status != tc.status || r.header.Get("Connection") != "close" {
			t.Errorf("%s: answered %d, connection %q, %v; want %d, close", tc.name, r.status, r.header.Get("Connection"), err, tc.status)
			continue
		}
		answered[tc.name] = w
	}
	for name, w := range answered { // the server takes half a second for each
		if err := w.isEnded(); err != nil {
			t.Errorf("%s: the connection does not end: %v", name, err)
		}
	}
	if after := s.written(); after != before {
		t.Errorf("%d rows were written", after-before)
	}
}

// TestBodyThatNeverArrives begins bodies for which the service waits, and then
// sends nothing more, or too little.
func TestBodyThatNeverArrives(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	s.serveWire(Limits{BodyTime: 200 * time.Millisecond, UploadWindow: 200 * time.Millisecond, UploadMin: 1 << 10, Linger: 50 * time.Millisecond})
	before := s.written()
	const csv = "Content-Type: text/csv"
	const reservation = "/v1/reservations/0199c2f4-7a10-7cc3-9b54-3f1f6f3f0f11"
	t.Run("calls", func(t *testing.T) {
		for name, sent := range map[string]string{
			"nothing":        s.head("POST /v1/carts/c/items", declared),
			"a part":         s.head("POST /v1/carts/c/items", declared) + `{"variant_id":`,
			"all but a byte": s.head("POST /v1/carts/c/items", "Content-Length: 36") + `{"variant_id":"shirt","quantity":1}`,
			"chunked":        s.head("POST /v1/carts/c/items", "Transfer-Encoding: chunked"),
			"half a chunk":   s.head("POST /v1/carts/c/items", "Transfer-Encoding: chunked") + "64\r\n{",
			"no last chunk":  s.head("POST /v1/carts/c/items", "Transfer-Encoding: chunked") + "2\r\n{}\r\n",
			"PUT":            s.head("PUT /v1/stocks/shirt", declared),
			"PATCH":          s.head("PATCH /v1/carts/c/items/shirt", declared),
			"checkout":       s.head("POST /v1/carts/c/checkout", declared),
			"commit":         s.head("POST "+reservation+"/commit", declared),
			"with a key":     s.head("POST /v1/carts/c/items", "Idempotency-Key: k", declared),
			"import":         s.head("POST /v1/stocks/import", csv, declared),
			"import chunked": s.head("POST /v1/stocks/import", csv, "Transfer-Encoding: chunked"),
			"import, a part": s.head("POST /v1/stocks/import", csv, "Content-Length: 1000000") + "variant_id,stock\nnew,1\n",
			"import, keyed":  s.head("POST /v1/stocks/import", csv, "Idempotency-Key: i", declared),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := s.dial()
				w.write(sent)
				s.isLate(w.answer())
				if err := w.isEnded(); err != nil {
					t.Errorf("the connection does not end: %v", err)
				}
			})
		}
		t.Run("offered", func(t *testing.T) {
			t.Parallel()
			w := s.dial()
			w.write(s.head("POST /v1/carts/c/items", "Expect: 100-continue", declared))
			if r := w.answer(); r.status != http.StatusContinue {
				t.Errorf("answered %d, want 100 Continue", r.status)
			}
			s.isLate(w.answer())
		})
		for _, call := range []string{"POST /v1/carts/c/items", "POST /v1/stocks/import"} {
			t.Run("trickle "+call, func(t *testing.T) {
				t.Parallel()
				w := s.dial()
				w.write(s.head(call, "Content-Length: 60000", "Content-Type: "))
				stop := make(chan struct{})
				var sending sync.WaitGroup
				sending.Go(func() { w.trickle(stop, " ", 20*time.Millisecond) })
				s.isLate(w.answer())
				close(stop)
				sending.Wait()
			})
		}
	})
	if after := s.written(); after != before {
		t.Errorf("%d rows were written", after-before)
	}
}

func (s *shop) isLate(r reply) {
	s.t.Helper()
	p := s.isProblem(r, malformed)
	if p.Detail != "the body did not arrive in time" || r.header.Get("Connection") != "close" {
		s.t.Errorf("answered %q, connection %q", p.Detail, r.header.Get("Connection"))
	}
}

// trickle sends text repeatedly until stop is closed or the server closes the
// connection.
func (w *wire) trickle(stop <-chan struct{}, text string, every time.Duration) (sent int) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return sent
		case <-ticker.C:
		}
		if _, err := io.WriteString(w, text); err != nil {
			return sent
		}
		sent++
	}
}

// TestImportHasTheTimeOfAnUpload sends an import after the time limit for other
// bodies.
func TestImportHasTheTimeOfAnUpload(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.serveWire(Limits{BodyTime: time.Nanosecond, UploadWindow: never, Linger: 50 * time.Millisecond})
	const body = "variant_id,stock\nv1,1\nv2,1\n"
	length := "Content-Length: " + strconv.Itoa(len(body))
	w := s.dial()
	w.write(s.head("POST /v1/stocks/import", "Content-Type: text/csv", "Expect: 100-continue", length))
	if r := w.answer(); r.status != http.StatusContinue { // the service reads
		t.Fatalf("answered %d, want 100 Continue", r.status)
	}
	w.write(body)
	if r := w.answer(); r.status != 200 || r.object(t)["imported"] != 2. {
		t.Errorf("answered %d %s", r.status, r.body)
	}
	w = s.dial()
	w.write(s.head("PUT /v1/stocks/v1", "Expect: 100-continue", length))
	if r := w.answer(); r.status != http.StatusContinue {
		t.Fatalf("answered %d, want 100 Continue", r.status)
	}
	s.isLate(w.answer())
}

// TestDeadlinesEndWithTheBody makes a call wait for longer than the server's
// ReadTimeout and the time limit for bodies, with and without telemetry around
// the handler.
func TestDeadlinesEndWithTheBody(t *testing.T) {
	t.Parallel()
	for name, around := range map[string]func(*http.Server){
		"plain":  func(*http.Server) {},
		"traced": func(server *http.Server) { server.Handler = otelhttp.NewHandler(server.Handler, "http") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.stock("shirt", `{"stock":5}`)
			s.serveWire(Limits{BodyTime: 500 * time.Millisecond, AnswerTime: 500 * time.Millisecond, Linger: 50 * time.Millisecond},
				func(server *http.Server) { server.ReadTimeout = 500 * time.Millisecond }, around)
			const body = `{"variant_id":"shirt","quantity":1}`
			w := s.dial()
			for range 2 { // the second has the deadlines that the first set
				w.write(s.head("POST /v1/carts/c/items", "Prefer: wait=1", "Content-Length: "+strconv.Itoa(len(body))) + body)
				r := w.answer()
				if r.status != 202 || r.header.Get("Preference-Applied") != "wait=1" {
					t.Fatalf("answered %d %s", r.status, r.body)
				}
				w.write(s.head("GET " + r.text(t, "status_url") + "?wait=1"))
				if r := w.answer(); r.status != 200 || r.text(t, "status") != "queued" {
					t.Fatalf("answered %d %s", r.status, r.body)
				}
			}
			w.write(rawHead("POST /v1/carts/c/items", declared))
			if r := w.answer(); r.status != 401 || r.header.Get("Connection") != "close" {
				t.Errorf("answered %d, connection %q", r.status, r.header.Get("Connection"))
			}
			if err := w.isEnded(); err != nil {
				t.Errorf("the connection does not end: %v", err)
			}
		})
	}
}

// TestUnwantedBodyThatArrived checks that the connection stays open if the
// unread body came with the head. A client that is still sending can read the
// answer.
func TestUnwantedBodyThatArrived(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.serveWire(Limits{Linger: never})
	w := s.dial()
	for _, head := range []string{
		rawHead("POST /v1/carts/c/items", "Content-Length: 2"), s.head("DELETE /v1/carts/c", "Content-Length: 2"), s.head("GET /v1/carts/c", "Content-Length: 2"),
	} {
		w.write(head + "{}")
		if r := w.answer(); r.header.Get("Connection") == "close" {
			t.Errorf("%.30q: answered %d and closed", head, r.status)
		}
	}
	w.write(rawHead("POST /v1/carts/c/items", "Content-Length: 200000"))
	r := w.answer()
	if r.status != 401 || r.header.Get("Connection") != "close" {
		t.Errorf("answered %d, connection %q", r.status, r.header.Get("Connection"))
	}
	w.write(strings.Repeat("x", 200_000))
	if err := w.isEnded(); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
}

// TestCallerThatDoesNotRead requests much data and reads none of it.
func TestCallerThatDoesNotRead(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	closed := make(chan struct{})
	s.serveWire(Limits{AnswerTime: 200 * time.Millisecond}, func(server *http.Server) {
		server.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed {
				close(closed)
			}
		}
	})
	w := s.dial()
	go func() {
		for { // until the server closes the connection
			if _, err := io.WriteString(w, rawHead("GET /openapi.json")); err != nil {
				return
			}
		}
	}()
	select {
	case <-closed:
	case <-time.After(wireTimeout):
		t.Error("the server still waits for the caller to read")
	}
}

// TestStopEndsBodies stops the program while bodies arrive. A call that is
// being handled is not cut off.
func TestStopEndsBodies(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":5}`)
	stopping, stop := context.WithCancel(context.Background())
	defer stop()
	reading := make(chan struct{}, 10)
	s.service.onStop = func(f func()) func() bool { return context.AfterFunc(stopping, f) }
	s.serveWire(Limits{BodyTime: never, UploadWindow: never, StopTime: 50 * time.Millisecond, Linger: 50 * time.Millisecond}, func(server *http.Server) {
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = &announced{ReadCloser: r.Body, reading: reading}
			s.service.ServeHTTP(w, r)
		})
	})
	stalled := []*wire{s.dial(), s.dial(), s.dial()}
	stalled[0].write(s.head("POST /v1/carts/c/items", declared))
	stalled[1].write(s.head("POST /v1/stocks/import", "Content-Type: text/csv", declared))
	stalled[2].write(s.head("POST /v1/stocks/import", "Content-Type: text/csv", "Idempotency-Key: k", declared))
	for range stalled {
		<-reading
	}
	working := s.dial()
	const body = `{"variant_id":"shirt","quantity":1}`
	working.write(s.head("POST /v1/carts/c/items", "Prefer: wait=1", "Content-Length: "+strconv.Itoa(len(body))) + body)
	<-reading
	stop()
	for i, w := range stalled {
		p := s.isProblem(w.answer(), overloaded)
		if isImport := i > 0; isImport != (p.Report != nil) {
			t.Errorf("stalled call %d: %+v", i, p)
		}
		if err := w.isEnded(); err != nil {
			t.Errorf("stalled call %d: the connection does not end: %v", i, err)
		}
	}
	if r := working.answer(); r.status != 202 || r.header.Get("Preference-Applied") != "wait=1" {
		t.Errorf("the call that was being handled was answered %d %s", r.status, r.body)
	}
	late := s.dial()
	late.write(s.head("POST /v1/carts/c/items", declared))
	s.isProblem(late.answer(), overloaded)
}

// announced reports each read of a body.
type announced struct {
	io.ReadCloser
	reading chan<- struct{}
}

func (a *announced) Read(p []byte) (int, error) {
	select {
	case a.reading <- struct{}{}:
	default:
	}
	return a.ReadCloser.Read(p)
}

// TestManyStalledConnections opens 2,000 connections without a key whose bodies
// never arrive. Other calls are served meanwhile.
func TestManyStalledConnections(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.serveWire(Limits{BodyTime: never, Linger: 200 * time.Millisecond})
	const connections = 2000
	wires := make([]*wire, connections)
	for i := range wires {
		wires[i] = s.dial()
		wires[i].write(rawHead("POST /v1/carts/c/items", declared))
	}
	s.call(200, "GET", "/v1/carts/c", "")
	for i, w := range wires {
		r, err := w.tryAnswer()
		if err == nil {
			err = w.isEnded()
		}
		if err != nil || r.status != 401 {
			t.Fatalf("connection %d: answered %d, %v", i, r.status, err)
		}
		_ = w.Close()
	}
}
