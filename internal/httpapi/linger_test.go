package httpapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// writeThenRead sends a whole call before it reads, as many clients do.
func (s *shop) writeThenRead(call, body string, lines ...string) (reply, error) {
	s.t.Helper()
	w := s.dial()
	defer func() { _ = w.Close() }()
	if _, err := io.WriteString(w, s.head(call, lines...)); err != nil {
		return reply{}, err
	}
	if _, err := io.WriteString(w, body); err != nil {
		return reply{}, fmt.Errorf("write the body: %w", err)
	}
	return w.tryAnswer()
}

// largeCall is a call whose body is far too large for what it is, and the
// status of the response.
type largeCall struct {
	call   string
	body   string
	lines  []string
	status int
}

// largeCalls are all calls that read a body, and others that are answered
// before their body.
func (s *shop) largeCalls() (calls []largeCall) {
	// Four times what net/http reads of a body that its handler left.
	body := strings.Repeat("x", 1<<20)
	file := strings.Repeat("x", 64<<20+1)
	concrete := strings.NewReplacer("{lane}", "hot", "{variant_id}", "shirt", "{cart_id}", "c", "{block}", "hall").Replace
	const id = "01a1f8c7-993c-7910-b8ca-25f7672f8c85"
	for path, item := range s.service.api.OpenAPI().Paths {
		for method, op := range map[string]any{"POST": item.Post, "PUT": item.Put, "PATCH": item.Patch} {
			if fmt.Sprint(op) == "<nil>" {
				continue
			}
			path := concrete(path)
			if open := strings.IndexByte(path, '{'); open >= 0 {
				path = path[:open] + id + path[strings.IndexByte(path, '}')+1:]
			}
			c := largeCall{call: method + " " + path, body: body, status: 413}
			if strings.HasSuffix(path, "/import") {
				c.body, c.lines = file, []string{"Content-Type: text/csv"}
			}
			calls = append(calls, c)
		}
	}
	add := func(status int, call string, lines ...string) {
		calls = append(calls, largeCall{call: call, body: body, lines: lines, status: status})
	}
	add(415, "POST /v1/carts/c/items", "Content-Type: text/plain")
	add(415, "POST /v1/stocks/import", "Content-Type: text/plain")
	add(422, "PATCH /v1/carts/c/items/%00")
	add(404, "POST /nothing")
	add(405, "POST /v1/carts/c")
	add(200, "DELETE /v1/carts/c")
	add(200, "GET /v1/carts/c")
	add(426, "GET /v1/live?ticket=t")
	add(200, "GET /livez")
	add(200, "GET /docs")
	add(200, "GET /metrics")
	return calls
}

// TestLargeBodies sends bodies that are too large, one of them more than a
// connection's buffers hold, and reads the response only after all of the body is
// written.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.serveWire(Limits{BodyTime: never, Linger: wireTimeout})
	calls := s.largeCalls()
	if len(calls) < 25 {
		t.Fatalf("only %d calls", len(calls))
	}
	for _, c := range calls {
		lines := slices.Concat(c.lines, []string{"Content-Length: " + strconv.Itoa(len(c.body))})
		if r, err := s.writeThenRead(c.call, c.body, lines...); err != nil || r.status != c.status || r.header.Get("Connection") != "close" {
			t.Errorf("%s: answered %d, connection %q, %v; want %d, close", c.call, r.status, r.header.Get("Connection"), err, c.status)
		}
	}
	chunked := "1000000\r\n" + strings.Repeat("x", 1<<24) + "\r\n0\r\n\r\n"
	r, err := s.writeThenRead("POST /v1/carts/c/items", chunked, "Transfer-Encoding: chunked")
	if err != nil || r.status != 413 {
		t.Errorf("chunked: answered %d, %v; want 413", r.status, err)
	}
	s.key = "hf_nonsense"
	for _, call := range []string{"POST /v1/carts/c/items", "PUT /v1/stocks/shirt", "PATCH /v1/carts/c/items/shirt", "DELETE /v1/carts/c", "POST /v1/stocks/import"} {
		body := calls[0].body
		if r, err := s.writeThenRead(call, body, "Content-Length: "+strconv.Itoa(len(body))); err != nil || r.status != 401 {
			t.Errorf("%s with an invalid key: answered %d, %v; want 401", call, r.status, err)
		}
	}
}

// TestLargeBodyOfAPage is TestLargeBodies for the pages beside the API.
func TestLargeBodyOfAPage(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.serveWire(Limits{}, func(server *http.Server) {
		server.Handler = Bodiless(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", http.StatusMethodNotAllowed)
		}))
	})
	body := strings.Repeat("x", 1<<20)
	if r, err := s.writeThenRead("POST /ops/", body, "Content-Length: "+strconv.Itoa(len(body))); err != nil || r.status != 405 {
		t.Errorf("answered %d, %v; want 405", r.status, err)
	}
}

// TestOfferedBody sends Expect: 100-continue. The service does not wait for a
// body that the client does not send, and does not ask for it.
func TestOfferedBody(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.serveWire(Limits{BodyTime: never, Linger: never})
	w := s.dial()
	w.write(s.head("POST /v1/carts/c/items", "Expect: 100-continue", "Content-Length: 16777216"))
	if r := w.answer(); r.status != 413 {
		t.Errorf("answered %d, want 413", r.status)
	}
	if err := w.isEnded(); err != nil {
		t.Errorf("the connection does not end: %v", err)
	}
}

// slowBody is a body of which a byte arrives after each pause, without an end.
// It keeps the deadline of its connection, as a connection does.
type slowBody struct {
	*httptest.ResponseRecorder
	pause    time.Duration
	size     int
	deadline time.Time
	arrived  int64
}

func (b *slowBody) SetReadDeadline(t time.Time) error  { b.deadline = t; return nil }
func (b *slowBody) SetWriteDeadline(_ time.Time) error { return nil }
func (b *slowBody) Close() error                       { return nil }

func (b *slowBody) Read(p []byte) (int, error) {
	if !b.deadline.IsZero() && time.Until(b.deadline) < b.pause {
		<-time.After(time.Until(b.deadline))
		return 0, os.ErrDeadlineExceeded
	}
	<-time.After(b.pause)
	n := min(b.size, len(p))
	b.arrived += int64(n)
	return n, nil
}

// TestLingerIsBounded sends bodies without an end. The clock is synctest's.
func TestLingerIsBounded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body   slowBody
		expect string
		want   time.Duration
		bytes  int64
	}{
		"a byte every 900 ms":     {body: slowBody{pause: 900 * time.Millisecond, size: 1}, want: 10 * time.Second, bytes: 11},
		"nothing":                 {body: slowBody{pause: time.Hour}, want: time.Second},
		"as fast as possible":     {body: slowBody{size: 1 << 20}, bytes: lingerBytes},
		"offered by 100-continue": {body: slowBody{size: 1}, expect: "100-continue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				body := tc.body
				body.ResponseRecorder = httptest.NewRecorder()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", &body)
				r.ContentLength = 1 << 40
				if tc.expect != "" {
					r.Header.Set("Expect", tc.expect)
				}
				began := time.Now()
				Bodiless(t.Context(), http.NotFoundHandler()).ServeHTTP(&body, r)
				if took := time.Since(began); took != tc.want || body.arrived != tc.bytes {
					t.Errorf("read %d bytes in %s, want %d in %s", body.arrived, took, tc.bytes, tc.want)
				}
				if body.Code != http.StatusNotFound || !body.Flushed && tc.expect == "" {
					t.Errorf("answered %d, sent before the body is read: %t", body.Code, body.Flushed)
				}
			})
		})
	}
}

// TestLingerCount answers lingerMax calls whose bodies never end. A further one
// is not read.
func TestLingerCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		handler := Bodiless(t.Context(), http.NotFoundHandler())
		ended := make(chan *slowBody, lingerMax+1)
		for range lingerMax + 1 {
			body := &slowBody{ResponseRecorder: httptest.NewRecorder(), pause: time.Hour}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
			r.ContentLength = 1 << 40
			go func() {
				handler.ServeHTTP(body, r)
				ended <- body
			}()
		}
		synctest.Wait()
		if n := len(ended); n != 1 {
			t.Errorf("%d calls are not read, want the one over the limit", n)
		}
		for range lingerMax + 1 {
			<-ended
		}
		body := &slowBody{ResponseRecorder: httptest.NewRecorder(), size: 1 << 20}
		handler.ServeHTTP(body, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", io.LimitReader(body, 1<<40)))
		if body.arrived == 0 {
			t.Error("no connection is read after the others have ended")
		}
	})
}

// TestAbortedCall checks that a call that its handler aborts has no response.
func TestAbortedCall(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.serveWire(Limits{Linger: never})
	s.service.mux.HandleFunc("POST /aborted", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	w := s.dial()
	w.write(s.head("POST /aborted", "Content-Length: 2") + "{}")
	if r, err := w.tryAnswer(); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		t.Errorf("answered %d, %v; want no answer", r.status, err)
	}
}
