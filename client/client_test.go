package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/client"
)

// script answers each call with the next of its answers, and keeps the calls.
type script struct {
	mu      sync.Mutex
	answers []func(http.ResponseWriter)
	calls   []string
	keys    []string
	retries atomic.Int64
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprintf("%s %s %s", r.Method, r.RequestURI, body))
	s.keys = append(s.keys, r.Header.Get("Idempotency-Key"))
	answer := func(w http.ResponseWriter) { w.WriteHeader(http.StatusTeapot) }
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	s.mu.Unlock()
	answer(w)
}

func says(status int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func later(status int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "0")
		says(status, `{"code":"overloaded","detail":"too much"}`)(w)
	}
}

func (s *script) retrying(error) { s.retries.Add(1) }

// hangsUp closes the connection without an answer, like a killed program.
func hangsUp(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func serve(t *testing.T, answers ...func(http.ResponseWriter)) (*script, *client.Client) {
	t.Helper()
	s := &script{answers: answers}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	shop, err := client.New(client.Config{URLs: []string{server.URL + "/"}, Key: "hf_key", MaxRetries: 9, MaxRetryWait: time.Millisecond, Retrying: s.retrying})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shop.Close)
	return s, shop
}

func TestRetriesKeepTheirKey(t *testing.T) {
	t.Parallel()
	s, shop := serve(t, hangsUp, later(503), later(429), later(500), says(http.StatusAccepted, `{"request_id":"r-1","status":"queued"}`))
	got, err := shop.Add(t.Context(), "cart 1", "rolls/buns", 2, &client.CallOpts{IdempotencyKey: "key-1"})
	if err != nil {
		t.Fatal(err)
	}
	if got.RequestID != "r-1" || got.Finished() || s.retries.Load() != 4 {
		t.Errorf("%+v after %d retries", got, s.retries.Load())
	}
	want := slices.Repeat([]string{`POST /v1/carts/cart%201/items {"quantity":2,"variant_id":"rolls/buns"}`}, 5)
	if diff := cmp.Diff(want, s.calls); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(slices.Repeat([]string{"key-1"}, 5), s.keys); diff != "" {
		t.Error(diff)
	}
}

func TestRefusalsAreNotRetried(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 409, 413, 422} {
		s, shop := serve(t, says(status, `{"code":"no","detail":"not like this"}`))
		_, err := shop.Stock(t.Context(), "hat")
		problem, ok := errors.AsType[*client.Error](err)
		if !ok || problem.Status != status || problem.Code != "no" || len(s.calls) != 1 {
			t.Errorf("%d: %v after %d calls", status, err, len(s.calls))
		}
	}
	s, shop := serve(t, says(200, `<html>`))
	if _, err := shop.Stock(t.Context(), "hat"); err == nil || len(s.calls) != 1 {
		t.Errorf("an answer that is not JSON: %v", err)
	}
}

// scripted is a line of clients/cases.json.
type scripted struct {
	Name, Key string
	Retries   int // MaxRetries
	Answers   []struct {
		Status     int // 0: no answer
		RetryAfter int `json:"retry_after"`
	} // the last one is repeated
	Waits []int64 // between the attempts, in milliseconds, without what is added at random
	Ends  int     // the status of the last answer
}

// attempts answers calls as the case says, and keeps when they came and with which
// keys.
type attempts struct {
	scripted
	at   []time.Time
	keys []string
}

func (a *attempts) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	answer := a.Answers[min(len(a.at), len(a.Answers)-1)]
	a.at, a.keys = append(a.at, time.Now()), append(a.keys, r.Header.Get("Idempotency-Key"))
	if answer.Status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	w := httptest.NewRecorder()
	if answer.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(answer.RetryAfter))
	}
	says(answer.Status, `{"code":"overloaded","detail":"too much"}`)(w)
	return w.Result(), nil
}

// The cases that the client for TypeScript passes too, on a clock of the test's
// own.
func TestCases(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../clients/cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []scripted
	if err := json.Unmarshal(text, &cases); err != nil || len(cases) == 0 {
		t.Fatal(len(cases), err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { checkCase(t, c) })
		})
	}
}

func checkCase(t *testing.T, c scripted) {
	t.Helper()
	a := &attempts{scripted: c}
	shop, err := client.New(client.Config{URLs: []string{"http://shop"}, Key: "hf_key", MaxRetries: c.Retries, HTTP: &http.Client{Transport: a}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = shop.Checkout(t.Context(), "cart-1", &client.CallOpts{IdempotencyKey: c.Key})
	problem, refused := errors.AsType[*client.Error](err)
	switch {
	case c.Ends == 0 && (refused || !errors.Is(err, io.ErrUnexpectedEOF)),
		c.Ends >= 400 && (!refused || problem.Status != c.Ends),
		c.Ends > 0 && c.Ends < 400 && err != nil:
		t.Errorf("it ended with %v, want %d", err, c.Ends)
	}
	if len(a.at) != len(c.Waits)+1 {
		t.Fatalf("%d attempts, want %d", len(a.at), len(c.Waits)+1)
	}
	for i, wait := range c.Waits {
		least := time.Duration(wait) * time.Millisecond
		if waited := a.at[i+1].Sub(a.at[i]); waited < least || waited > least+least/4 {
			t.Errorf("wait %d is %s, want %s and up to a quarter more", i+1, waited, least)
		}
	}
	if key := a.keys[0]; key == "" || c.Key != "" && key != c.Key || slices.ContainsFunc(a.keys, func(k string) bool { return k != key }) {
		t.Errorf("the keys are %q", a.keys)
	}
}

// A crowd that is refused at once comes back spread over at least a fifth of the
// wait.
func TestCrowdComesBackSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c scripted
		if err := json.Unmarshal([]byte(`{"answers":[{"status":503,"retry_after":4},{"status":200}]}`), &c); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		back := make(chan time.Duration, 1000)
		for range cap(back) {
			go func() {
				a := &attempts{scripted: c}
				shop, err := client.New(client.Config{URLs: []string{"http://shop"}, Key: "hf_key", HTTP: &http.Client{Transport: a}})
				if err == nil {
					_, err = shop.Stock(t.Context(), "hat")
				}
				if err != nil {
					t.Error(err)
				}
				back <- a.at[len(a.at)-1].Sub(began)
			}()
		}
		first, last := time.Hour, time.Duration(0)
		for range cap(back) {
			at := <-back
			first, last = min(first, at), max(last, at)
		}
		if first < 4*time.Second || last > 5*time.Second || last-first < 800*time.Millisecond {
			t.Errorf("they came back from %s to %s", first, last)
		}
	})
}

func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, shop := serve(t, later(503))
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := shop.Stock(ctx, "hat"); !errors.Is(err, enough) {
		t.Errorf("after its context ended: %v", err)
	}
}

func TestWaitAsksUntilFinished(t *testing.T) {
	t.Parallel()
	s, shop := serve(t, says(200, `{"request_id":"r-1","status":"queued"}`), hangsUp,
		says(200, `{"request_id":"r-1","status":"done","reservation":{"reservation_id":"r-1"}}`))
	got, err := shop.Wait(t.Context(), "r-1", time.Hour)
	if err != nil || !got.Finished() || got.Reservation == nil {
		t.Errorf("%+v, %v", got, err)
	}
	if len(s.calls) != 3 || s.calls[0] != "GET /v1/requests/r-1?wait=10 " {
		t.Errorf("%q", s.calls)
	}
}

func TestTakesAddressesInTurn(t *testing.T) {
	t.Parallel()
	var shops [3]*script
	var urls []string
	for i := range shops {
		shops[i] = &script{answers: slices.Repeat([]func(http.ResponseWriter){says(200, `{}`)}, 4)}
		server := httptest.NewServer(shops[i])
		t.Cleanup(server.Close)
		urls = append(urls, server.URL)
	}
	shop, err := client.New(client.Config{URLs: urls, Key: "hf_key"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shop.Close)
	for range 12 {
		if _, err := shop.Cart(t.Context(), "c", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
	for i := range shops {
		if len(shops[i].calls) != 4 {
			t.Errorf("address %d had %d calls of 12", i, len(shops[i].calls))
		}
	}
	if _, err := client.New(client.Config{Key: "hf_key"}); err == nil {
		t.Error("a shop without an address")
	}
	if _, err := client.New(client.Config{URLs: []string{"http://a b"}, Key: "hf_key"}); err == nil {
		t.Error("a shop at an invalid address")
	}
	if _, err := client.New(client.Config{URLs: urls}); err == nil || err.Error() != "client: no API key" {
		t.Errorf("a shop without a key: %v", err)
	}
}
