package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// streamed is an open stream of events.
type streamed struct {
	t      *testing.T
	status int
	header http.Header
	lines  *bufio.Reader
	cancel context.CancelFunc
}

// event is one event of a stream, or a comment.
type event struct{ id, name, data, retry, comment string }

// stream opens a stream. Its server does not buffer responses, unlike the one
// that compares them with the document.
func (s *shop) stream(t *testing.T, path string, headers ...string) *streamed {
	t.Helper()
	server := httptest.NewServer(s.service)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); server.Close() })
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, http.NoBody)
	s.must(err)
	request.Header.Set("Authorization", "Bearer "+s.key)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := server.Client().Do(request)
	s.must(err)
	t.Cleanup(func() { _ = response.Body.Close() })
	return &streamed{t: t, status: response.StatusCode, header: response.Header, lines: bufio.NewReader(response.Body), cancel: cancel}
}

// next returns the next event, or the zero event once the stream has ended.
func (st *streamed) next() (e event) {
	st.t.Helper()
	for {
		line, err := st.lines.ReadString('\n')
		if err != nil {
			return event{}
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			e.data = value
		case "retry":
			e.retry = value
		case "":
			if line == "" {
				return e
			}
			e.comment = value
		}
	}
}

// ids reads the stream to its end, and returns the ids of its events.
func (st *streamed) ids() (ids []string) {
	st.t.Helper()
	for e := st.next(); e != (event{}); e = st.next() {
		if e.id != "" {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// TestRequestEvents follows a request of a hot variant: its position decreases,
// and the stream ends with its outcome.
func TestRequestEvents(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1,"lane":"hot"}`)
	s.decide() // the variant is hot
	s.add("first", "shirt", 1)
	s.add("second", "shirt", 1)
	path := "/v1/requests/" + s.add("third", "shirt", 1) + "/events"
	st := s.stream(t, path)
	if got := st.header.Get("Cache-Control") + ", " + st.header.Get("X-Accel-Buffering") + ", " + st.header.Get("Content-Type"); got != "no-store, no, text/event-stream" {
		t.Errorf("%d with the headers %s", st.status, got)
	}
	if e := st.next(); e.retry != "1000" {
		t.Errorf("the stream begins with %+v", e)
	}
	if e := st.next(); e.id != "queued-2" || e.name != "request" || !strings.Contains(e.data, `"position":2`) {
		t.Errorf("the first event is %+v", e)
	}
	s.call(200, "DELETE", "/v1/carts/first", "")
	if e := st.next(); e.id != "queued-1" {
		t.Errorf("one fewer is ahead: %+v", e)
	}
	s.decide()
	last := st.next()
	if last.id != "failed" || !json.Valid([]byte(last.data)) {
		t.Errorf("the last event is %+v", last)
	}
	if e := st.next(); e != (event{}) {
		t.Errorf("after the last event: %+v", e)
	}
	if want := s.call(200, "GET", strings.TrimSuffix(path, "/events"), ""); string(want.body) != last.data {
		t.Errorf("the data is %s, the request %s", last.data, want.body)
	}
	whole := s.call(200, "GET", path, "")
	whole.body = encode(string(whole.body))
	golden(t, "request_events", whole)
	s.call(204, "GET", path, "", lastEventHeader, "failed")
	if ids := s.stream(t, path, lastEventHeader, "queued-1").ids(); !slices.Equal(ids, []string{"failed"}) {
		t.Errorf("a client that missed the outcome receives %q", ids)
	}
}

// TestRequestEventsResume checks that a client that connects again, to another
// process, does not receive the state that it has, and receives the outcome
// without delay.
func TestRequestEventsResume(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	s, other := openShop(t, db, holdfast.Config{}), openShop(t, db, holdfast.Config{})
	s.stock("shirt", `{"stock":1}`)
	id := s.add("c", "shirt", 1)
	other.service.bounds.heartbeat = 0
	st := other.stream(t, "/v1/requests/"+id+"/events", lastEventHeader, "queued")
	for range 3 {
		if e := st.next(); e.id != "" {
			t.Errorf("the state that the client has is sent again: %+v", e)
		}
	}
	s.decide()
	if ids := st.ids(); !slices.Equal(ids, []string{"done"}) {
		t.Errorf("the client receives %q", ids)
	}
}

// TestRequestEventsRefused checks which streams are refused: of unknown
// requests, of another tenant's, and too many.
func TestRequestEventsRefused(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	path := "/v1/requests/" + s.add("c", "shirt", 1) + "/events"
	s.refused(notFound, "GET", "/v1/requests/"+uuid.NewString()+"/events", "")
	streams := &s.service.streams
	for range tenantStreamsMax {
		if _, err := streams.enter(s.tenant.TenantID); err != nil {
			t.Fatal(err)
		}
	}
	s.refused(overLimit, "GET", path, "")
	for range streamsMax - tenantStreamsMax {
		if _, err := streams.enter(uuid.New()); err != nil {
			t.Fatal(err)
		}
	}
	_, s.key = s.newTenant("neighbour")
	s.refused(notFound, "GET", path, "")
	s.service.streams = openStreams{total: streamsMax}
	s.refused(overloaded, "GET", "/v1/requests/"+s.add("c", "shirt", 1)+"/events", "")
}

// TestRequestEventsEnd checks what ends a stream before the request is
// finished, and that no stream is counted afterwards.
func TestRequestEventsEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	path := "/v1/requests/" + s.add("c", "shirt", 1) + "/events"
	if r := s.call(200, "HEAD", path, ""); len(r.body) != 0 || r.header.Get("Content-Type") != eventStreamType {
		t.Errorf("HEAD: %v %q", r.header, r.body)
	}

	left := s.stream(t, path)
	left.next()
	left.cancel()
	pgtest.Until(t, "the stream of a client that left ends", func() bool { return s.openStreams() == 0 })

	s.service.bounds.stream = 50 * time.Millisecond
	if ids := s.stream(t, path).ids(); !slices.Equal(ids, []string{"queued"}) {
		t.Errorf("a stream that is old enough sends %q", ids)
	}

	s.service.bounds.stream = time.Hour
	stopping := make(chan struct{})
	s.service.onStop = func(f func()) func() bool {
		go func() { <-stopping; f() }()
		return func() bool { return true }
	}
	stopped := s.stream(t, path)
	if e := []event{stopped.next(), stopped.next()}[1]; e.id != "queued" {
		t.Errorf("the stream begins with %+v", e)
	}
	_, err := s.db.Exec(t.Context(), `UPDATE reservation_requests SET status = 'done'`) // not notified of
	s.must(err)
	close(stopping)
	if ids := stopped.ids(); !slices.Equal(ids, []string{"done"}) {
		t.Errorf("at the stop of the program the stream sends %q", ids)
	}
	if n := s.openStreams(); n != 0 {
		t.Errorf("%d streams are open after their ends", n)
	}
}

// TestStreamsOfRevokedKeysEnd checks that a stream ends soon after its key is
// revoked or loses its scope, or its tenant has moved, and that no other stream
// does.
func TestStreamsOfRevokedKeysEnd(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.stock("shirt", `{"stock":1}`)
	s.service.bounds.heartbeat, s.service.bounds.stream = 20*time.Millisecond, time.Minute
	ofRequest, ofStock := "/v1/requests/"+s.add("c", "shirt", 1)+"/events", "/v1/stocks/shirt/events"
	kept := []*streamed{s.stream(t, ofRequest), s.stream(t, ofStock)}
	s.key = s.newKey(s.tenant, tenants.ScopeCart)
	kept = append(kept, s.stream(t, ofStock)) // any scope will do
	scopeLost := s.stream(t, ofRequest)
	scopeLost.next()
	_, err := s.db.Exec(t.Context(), `UPDATE api_keys SET scopes = '{stock}' WHERE prefix = $1`, s.key[:len("hf_123456")])
	s.must(err)
	ended := []*streamed{scopeLost}
	for _, path := range []string{ofRequest, ofStock} {
		plaintext, key, err := tenants.CreateKey(t.Context(), s.db, s.tenant.TenantID, "test", tenants.AllScopes())
		s.must(err)
		s.key = plaintext
		st := s.stream(t, path)
		st.next()
		_, err = tenants.RevokeKey(t.Context(), s.db, s.tenant.TenantID, key.KeyID)
		s.must(err)
		ended = append(ended, st)
	}
	ended = append(ended, s.streamOfMoved(t))
	for _, st := range ended {
		st.ids()
	}
	for i, st := range kept { // they began before, so the others did not end by their length
		for range 3 {
			if e := st.next(); e == (event{}) {
				t.Errorf("stream %d of a valid key has ended", i)
			}
		}
	}
}

// streamOfMoved returns a stream of a tenant that has moved to another cell since.
func (s *shop) streamOfMoved(t *testing.T) *streamed {
	t.Helper()
	tenant, key := s.newTenant("moved")
	s.key = key
	s.stock("shirt", `{"stock":1}`)
	st := s.stream(t, "/v1/stocks/shirt/events")
	st.next()
	_, err := s.db.Exec(t.Context(), `UPDATE tenant_state SET state = 'gone', moves_to = 'us' WHERE tenant_id = $1`, tenant.TenantID)
	s.must(err)
	return st
}

func (s *shop) openStreams() int {
	s.service.streams.mu.Lock()
	defer s.service.streams.mu.Unlock()
	return s.service.streams.total + len(s.service.streams.byTenant)
}
