package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
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
	shop, err := client.New(client.Config{URLs: []string{server.URL + "/"}, Key: "hf_key", RetryFor: 5 * time.Minute, Retrying: s.retrying})
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
	want := slices.Repeat([]string{`POST /v1/carts/cart%201/items {"variant_id":"rolls/buns","quantity":2}`}, 5)
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

// refusing answers every call 503, without a connection, unless its context has
// ended.
type refusing struct{}

func (refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := context.Cause(r.Context()); err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	later(http.StatusServiceUnavailable)(w)
	return w.Result(), nil
}

func TestRetriesEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s script
		shop, err := client.New(client.Config{URLs: []string{"http://shop"}, Key: "hf_key", RetryFor: time.Minute,
			HTTP: &http.Client{Transport: refusing{}}, Retrying: s.retrying})
		if err != nil {
			t.Fatal(err)
		}
		_, err = shop.Stock(t.Context(), "hat")
		// A minute of the test's own clock has room for about 66 retries: the first
		// waits are short, and the others a second, half of it more or less.
		if problem, ok := errors.AsType[*client.Error](err); !ok || problem.Status != 503 || s.retries.Load() < 40 || s.retries.Load() > 130 {
			t.Errorf("%v after %d retries", err, s.retries.Load())
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		cancel(enough)
		if _, err := shop.Stock(ctx, "hat"); !errors.Is(err, enough) {
			t.Errorf("after its context ended: %v", err)
		}
	})
}

func TestWaitAsksUntilFinished(t *testing.T) {
	t.Parallel()
	s, shop := serve(t, says(200, `{"request_id":"r-1","status":"queued"}`), hangsUp,
		says(200, `{"request_id":"r-1","status":"done","reservation":{"reservation_id":"r-1"}}`))
	got, err := shop.Wait(t.Context(), "r-1")
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
		if _, err := shop.Cart(t.Context(), "c"); err != nil {
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
