package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/cmd/internal/boot"
	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/tenants"
)

// storefront calls one API with a key of the shop.
type storefront struct {
	t         testing.TB
	base, key string
	http      *http.Client
	api       *client.Client
}

// open waits until the program serves.
func open(t testing.TB, shop *programtest.Fixture, api *programtest.Inside) *storefront {
	t.Helper()
	return openAt(t, shop, api.Stderr)
}

// openAt waits until the program with that log serves.
func openAt(t testing.TB, shop *programtest.Fixture, log *programtest.Output) *storefront {
	t.Helper()
	var line struct{ Address string }
	if err := json.Unmarshal([]byte(log.Line(t, "the API serves")), &line); err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(line.Address)
	if err != nil {
		t.Fatal(err)
	}
	key, _, err := tenants.CreateKey(t.Context(), shop.DB, shop.Tenant, "test", tenants.AllScopes())
	if err != nil {
		t.Fatal(err)
	}
	s := &storefront{
		t: t, base: "http://127.0.0.1:" + port, key: key,
		http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 100, ExpectContinueTimeout: time.Minute}},
	}
	s.api, err = client.New(client.Config{URLs: []string{s.base}, Key: key, AttemptTimeout: time.Minute, HTTP: s.http})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.http.CloseIdleConnections)
	return s
}

// call returns the status and body. It returns an error only if there was no
// answer.
func (s *storefront) call(method, path, body string) (int, map[string]any, error) {
	s.t.Helper()
	return s.do(context.Background(), method, path, body, http.Header{})
}

func (s *storefront) do(ctx context.Context, method, path, body string, header http.Header) (int, map[string]any, error) {
	s.t.Helper()
	response, err := s.api.Send(ctx, client.Call{Method: method, Path: path, Body: []byte(body), CallOpts: client.CallOpts{Header: header}})
	if response == nil {
		return 0, nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(response.Body, &fields); err != nil {
		s.t.Errorf("%s %s: %d %q", method, path, response.Status, response.Body)
	}
	return response.Status, fields, nil
}

// page returns the text of a page.
func (s *storefront) page(path string) string {
	s.t.Helper()
	r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, s.base+path, http.NoBody)
	r.RequestURI = ""
	answer, err := s.http.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

const add = `{"variant_id":"shirt","quantity":1}`

// The program is stopped while 50 shoppers add to their carts and one waits for
// an outcome. Each call is answered or not accepted, so there are as many
// requests as 202 answers. The waiting caller receives the current state. No
// goroutine is left.
func TestStops(t *testing.T) { //nolint:paralleltest // it looks for goroutines that are left
	shop := programtest.NewFixture(t)
	leak := goleak.IgnoreCurrent()
	api := programtest.Start(t, run, shop.Env())
	front := open(t, shop, api)
	status, queued, err := front.call(http.MethodPost, "/v1/carts/waiting/items", add)
	if err != nil || status != http.StatusAccepted {
		t.Fatalf("add: %d %v %v", status, queued, err)
	}

	var shoppers sync.WaitGroup
	var accepted, refused atomic.Int64
	accepted.Add(1)
	enough := make(chan struct{})
	for i := range 50 {
		shoppers.Go(func() {
			for n := 0; ; n++ {
				status, body, err := front.call(http.MethodPost, fmt.Sprintf("/v1/carts/cart-%d-%d/items", i, n), add)
				switch {
				case err != nil:
					return // no longer accepted
				case status == http.StatusAccepted:
					if accepted.Add(1) == 200 {
						close(enough)
					}
				case status == http.StatusServiceUnavailable:
					refused.Add(1)
					return
				default:
					t.Errorf("add: %d %v", status, body)
					return
				}
			}
		})
	}
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		status, body, err := front.call(http.MethodGet, fmt.Sprintf("/v1/requests/%s?wait=30", queued["request_id"]), "")
		if err != nil || status != http.StatusOK || body["status"] != "queued" {
			t.Errorf("the waiting caller received %d %v %v", status, body, err)
		}
	}()
	<-enough
	if err := api.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	<-waited
	shoppers.Wait()
	if got := int64(shop.Count().Unfinished); got != accepted.Load() {
		t.Errorf("%d requests for %d answers 202 (%d were refused)", got, accepted.Load(), refused.Load())
	}
	shop.Verify()
	front.http.CloseIdleConnections()
	if err := goleak.Find(leak); err != nil {
		t.Errorf("left running: %v", err)
	}
}

func TestServes(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	front := open(t, shop, programtest.Start(t, run, shop.Env()))
	for _, path := range []string{"/livez", "/readyz", "/health", "/openapi.json", "/v1/lanes", "/v1/carts/none"} {
		if status, body, err := front.call(http.MethodGet, path, ""); status != http.StatusOK {
			t.Errorf("%s: %d %v %v", path, status, body, err)
		}
	}
	if status, body, err := front.call(http.MethodGet, "/demo/", ""); status != http.StatusNotFound {
		t.Errorf("the storefront of the all-in-one: %d %v %v", status, body, err)
	}
	if metrics := front.page("/metrics"); !strings.Contains(metrics, "process_cpu_seconds_total") {
		t.Errorf("metrics: %.200s", metrics)
	}
	status, body, err := front.call(http.MethodGet, "/v1/carts/"+strings.Repeat("x", 17<<10), "")
	if err == nil && status < 400 {
		t.Errorf("a header of 17 KiB: %d %v", status, body)
	}
}

// The error for a port that another process uses is one clear sentence.
func TestPortTaken(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	_, port, err := net.SplitHostPort(other.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = programtest.Once(t, run, shop.Env("PORT", port))
	if err == nil || !strings.HasPrefix(err.Error(), "port "+port+" is taken") {
		t.Errorf("%v, want a sentence with the cause", err)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	_, _, err := programtest.Once(t, run, map[string]string{}, "--port", "80")
	if _, ok := errors.AsType[*boot.UsageError](err); !ok {
		t.Errorf("%v, want a usage error", err)
	}
}
