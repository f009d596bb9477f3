package load_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/bench/load"
)

// script is a session of given calls.
type script struct {
	calls   []load.Call
	answers []string
	fault   error
}

func (s *script) Next() (load.Call, bool) {
	if len(s.answers) == len(s.calls) {
		return load.Call{}, false
	}
	return s.calls[len(s.answers)], true
}

func (s *script) Answered(a load.Answer) error {
	s.answers = append(s.answers, string(a.Body))
	return s.fault
}

// server records the calls that it answers, each by the connection that it came
// on.
type server struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string][]string
}

func newServer(t *testing.T, status func(*http.Request) int) *server {
	t.Helper()
	s := &server{calls: make(map[string][]string)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		call := strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Prefer"), string(body)}, " ")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.calls[r.RemoteAddr] = append(s.calls[r.RemoteAddr], call)
		w.WriteHeader(status(r))
		if _, err := io.WriteString(w, r.Method); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) target() load.Target {
	return load.Target{Address: s.Listener.Addr().String(), Key: "key", Wait: 10}
}

func always(status int) func(*http.Request) int { return func(*http.Request) int { return status } }

var item = load.Item{CartID: "cart", VariantID: "shoe"}

// A session sends its calls on one connection, in the form that the API has,
// and takes each answer.
func TestSession(t *testing.T) {
	t.Parallel()
	s := newServer(t, always(http.StatusOK))
	session := &script{calls: []load.Call{
		{Verb: load.Add, Item: item},
		{Verb: load.Set, Item: item, Quantity: 3},
		{Verb: load.Checkout, Item: item},
		{Verb: load.Remove, Item: item},
	}}
	r, err := load.Sessions(t.Context(), s.target(), time.Minute, []load.Session{session})
	if err != nil {
		t.Fatal(err)
	}
	if r.Accepted != 4 || r.Decided != 4 || len(r.Latencies) != 4 {
		t.Errorf("%d accepted and %d decided with %d latencies, want 4 each", r.Accepted, r.Decided, len(r.Latencies))
	}
	if diff := cmp.Diff([]string{"POST", "PATCH", "POST", "DELETE"}, session.answers); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	var got [][]string
	for _, calls := range s.calls {
		got = append(got, calls)
	}
	want := [][]string{{
		`POST /v1/carts/cart/items Bearer key wait=10 {"variant_id":"shoe","quantity":1}`,
		`PATCH /v1/carts/cart/items/shoe Bearer key wait=10 {"quantity":3}`,
		`POST /v1/carts/cart/checkout Bearer key  `,
		`DELETE /v1/carts/cart/items/shoe Bearer key  `,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls by connection (-want +got):\n%s", diff)
	}
}

// The session decides about a 409 that answers a checkout. A 409 that answers
// any other call is an error.
func TestSessionConflict(t *testing.T) {
	t.Parallel()
	s := newServer(t, always(http.StatusConflict))
	session := &script{calls: []load.Call{{Verb: load.Checkout, Item: item}}}
	r, err := load.Sessions(t.Context(), s.target(), time.Minute, []load.Session{session})
	if err != nil || len(session.answers) != 1 || r.Accepted != 0 {
		t.Errorf("a checkout: %v with %d answers, %d accepted", err, len(session.answers), r.Accepted)
	}
	session = &script{calls: []load.Call{{Verb: load.Remove, Item: item}}}
	if _, err := load.Sessions(t.Context(), s.target(), time.Minute, []load.Session{session}); err == nil || !strings.Contains(err.Error(), "409") {
		t.Errorf("a removal: %v, want an error with 409", err)
	}
}

// An error of a session fails the load, and a load ends at its time although
// its sessions do not.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	s := newServer(t, always(http.StatusOK))
	fault := errors.New("a fault")
	session := &script{calls: []load.Call{{Item: item}, {Item: item}}, fault: fault}
	if _, err := load.Sessions(t.Context(), s.target(), time.Minute, []load.Session{session}); !errors.Is(err, fault) || len(session.answers) != 1 {
		t.Errorf("%v after %d calls, want the session's error after 1", err, len(session.answers))
	}
	const long = 50 * time.Millisecond
	r, err := load.Closed(t.Context(), s.target(), 2, long, func() load.Item { return item })
	if err != nil || r.Accepted == 0 || r.Elapsed < long {
		t.Errorf("a closed load: %v with %d accepted in %s", err, r.Accepted, r.Elapsed)
	}
}

// A refused call is counted as such, and its caller goes on.
func TestSessionRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, always(http.StatusServiceUnavailable))
	session := &script{calls: []load.Call{{Verb: load.Checkout, Item: item}, {Verb: load.Add, Item: item}}}
	r, err := load.Sessions(t.Context(), s.target(), time.Minute, []load.Session{session})
	if err != nil || r.Refused != 2 || r.Accepted != 0 {
		t.Errorf("%v with %d refused and %d accepted, want 2 and 0", err, r.Refused, r.Accepted)
	}
}
