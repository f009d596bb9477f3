package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast/holdfast/client"
)

// answer serves one answer to each call, and passes the request to look.
func answer(t *testing.T, status int, body string, look func(*http.Request)) *client.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look(r)
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the test finds an incomplete answer
	}))
	t.Cleanup(server.Close)
	c, err := client.New(client.Config{URLs: []string{server.URL + "/"}, Key: "hf_key", MaxRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A request has the key, the body, and each path segment fully escaped.
func TestSends(t *testing.T) {
	t.Parallel()
	var got string
	c := answer(t, http.StatusOK, `{"stock":3}`, func(r *http.Request) {
		got = r.Method + " " + r.RequestURI + " " + r.Header.Get("Authorization") + " " + r.Header.Get("Content-Type")
	})
	stock, err := c.SetStock(t.Context(), "rolls/buns %ü..", client.StockPatch{Stock: new(int64(3))}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := "PUT /v1/stocks/rolls%2Fbuns%20%25%C3%BC.. Bearer hf_key application/json"; got != want || stock.Stock != 3 {
		t.Errorf("sent %s, read %+v, want %s", got, stock, want)
	}
	for _, dots := range []string{".", ".."} {
		if _, err := c.Stock(t.Context(), dots); err != nil || !strings.Contains(got, "/v1/stocks/"+dots+" ") {
			t.Errorf("%s: sent %s, %v", dots, got, err)
		}
	}
}

// The options of a call become its headers.
func TestOptions(t *testing.T) {
	t.Parallel()
	var got http.Header
	c := answer(t, http.StatusOK, `{}`, func(r *http.Request) { got = r.Header })
	opts := client.CallOpts{
		IdempotencyKey: "key-1", CorrelationID: "c-1", Wait: 5 * time.Second,
		Customer: "ann", AdmissionToken: "t-1", Header: http.Header{"Traceparent": {"00-1"}},
	}
	if _, err := c.Add(t.Context(), "cart", "hat", 1, &opts); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Idempotency-Key": "key-1", "X-Correlation-Id": "c-1", "Prefer": "wait=5", "Admission-Token": "t-1", "Customer-Id": "ann", "Traceparent": "00-1", "Authorization": "Bearer hf_key",
	} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status     int
		body, want string
	}{
		"problem":  {422, `{"code":"invalid","detail":"The call is not valid.","errors":[{"field":"stock","message":"must be a number"}]}`, "The call is not valid. (422 invalid); stock must be a number"},
		"stranger": {404, `<html>`, "the server is not a Holdfast service: 404 Not Found"},
		"garbage":  {200, `<html>`, "the server is not a Holdfast service: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var into any
			err := answer(t, c.status, c.body, func(*http.Request) {}).Do(t.Context(), client.Call{Method: http.MethodGet, Path: "/"}, &into)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			failed, ok := errors.AsType[*client.Error](err)
			if ok != (c.status != 200) || ok && (failed.Status != c.status || failed.RetryAfter != 7*time.Second || (failed.Code == "invalid") != (name == "problem")) {
				t.Errorf("%#v", failed)
			}
		})
	}
	c, err := client.New(client.Config{URLs: []string{"http://127.0.0.1:1"}, Key: "hf_key", MaxRetries: -1})
	if err != nil {
		t.Fatal(err)
	}
	if response, err := c.Send(context.Background(), client.Call{Method: http.MethodGet, Path: "/"}); err == nil || response != nil {
		t.Errorf("no server: %v, %v", response, err)
	}
}

// A call that writes has a key of its own, which its retries repeat.
func TestRandomKeys(t *testing.T) {
	t.Parallel()
	s, c := serve(t, slices.Insert(slices.Repeat([]func(http.ResponseWriter){says(200, `{}`)}, 3), 0, later(503))...)
	for range 2 {
		if _, err := c.Remove(t.Context(), "cart", "", "", nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Cart(t.Context(), "cart", 0, ""); err != nil {
		t.Fatal(err)
	}
	if k := s.keys; len(k) != 4 || k[0] == "" || k[0] != k[1] || k[2] == "" || k[2] == k[0] || k[3] != "" {
		t.Errorf("keys %q", s.keys)
	}
}
