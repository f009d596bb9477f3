package client_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/client"
)

// answer serves one answer, and passes the request to look.
func answer(t *testing.T, status int, body string, look func(*http.Request)) *client.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look(r)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // the test finds an incomplete answer
	}))
	t.Cleanup(server.Close)
	c, err := client.New(server.URL+"/", "hf_key")
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
	var stock struct{ Stock int64 }
	if err := c.Do(t.Context(), http.MethodPut, client.Path("v1", "stocks", "rolls/buns %ü.."), map[string]int{"stock": 3}, &stock); err != nil {
		t.Fatal(err)
	}
	if want := "PUT /v1/stocks/rolls%2Fbuns%20%25%C3%BC.. Bearer hf_key application/json"; got != want || stock.Stock != 3 {
		t.Errorf("sent %s, read %+v, want %s", got, stock, want)
	}
	for _, dots := range []string{".", ".."} {
		if err := c.Do(t.Context(), http.MethodGet, client.Path("v1", "stocks", dots), nil, nil); err != nil || !strings.Contains(got, "/v1/stocks/"+dots+" ") {
			t.Errorf("%s: sent %s, %v", dots, got, err)
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
		"garbage":  {200, `<html>`, "the server at http://127.0.0.1:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var into any
			err := answer(t, c.status, c.body, func(*http.Request) {}).Do(t.Context(), http.MethodGet, "/", nil, &into)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			problem, ok := errors.AsType[*client.Problem](err)
			if ok != (name == "problem") || ok && (problem.Status != 422 || problem.Code != "invalid") {
				t.Errorf("%#v", problem)
			}
		})
	}
	if _, err := client.New("http://127.0.0.1:1", ""); !errors.Is(err, client.ErrNoKey) {
		t.Errorf("no key: %v", err)
	}
	c, err := client.New("http://127.0.0.1:1", "hf_key")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(context.Background(), http.MethodGet, "/", nil, nil); err == nil || !strings.HasPrefix(err.Error(), "nothing answers at http://127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
}
