package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
)

// asHost makes a call with the Host that a browser would send.
func (s service) asHost(host, method, path string, header http.Header) (status int, body string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(""))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Host, r.Close = host, true
	if header != nil {
		r.Header = header
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// A page whose name was made to resolve to this machine reads neither the
// storefront's key nor anything else.
func TestRunAnswersOnlyToLoopbackNames(t *testing.T) {
	t.Parallel()
	s := ready(t, programtest.Start(t, run, programtest.NewFixture(t).Env(), "run").Stdout)
	port := s.url[strings.LastIndex(s.url, ":"):]
	key := http.Header{"Authorization": {"Bearer " + s.key}}
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}}
	for _, call := range []struct {
		method, path string
		header       http.Header
	}{
		{"GET", "/demo/config.json", nil}, {"GET", "/demo/", nil}, {"GET", "/ops/", nil}, {"GET", "/", nil}, {"GET", "/docs", nil}, {"GET", "/metrics", nil},
		{"GET", "/livez", nil}, {"GET", "/v1/lanes", key}, {"POST", "/v1/live/tickets", key}, {"GET", "/v1/live?ticket=t", upgrade}, {"OPTIONS", "/v1/lanes", nil},
	} {
		for _, host := range []string{"evil.example" + port, "localhost.evil.example" + port, "0.0.0.0" + port} {
			status, body := s.asHost(host, call.method, call.path, call.header)
			if status != http.StatusMisdirectedRequest || !strings.Contains(body, `"code":"misdirected"`) {
				t.Errorf("%s %s at %s: %d %.200s, want 421", call.method, call.path, host, status, body)
			}
		}
		for _, host := range []string{"localhost" + port, "127.0.0.1" + port, "[::1]" + port, "shop.localhost"} {
			if status, body := s.asHost(host, call.method, call.path, call.header); status == http.StatusMisdirectedRequest {
				t.Errorf("%s %s at %s: %d %.200s", call.method, call.path, host, status, body)
			}
		}
	}
}

// The page at the root links to what runs beside the API.
func TestRootLinks(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	s := ready(t, programtest.Start(t, run, shop.Env(), "run").Stdout)
	_, body := s.asHost("localhost", "GET", "/", nil)
	for _, path := range []string{"/ops/", "/demo/", "/docs"} {
		if !strings.Contains(body, `href="`+path+`"`) {
			t.Errorf("the page does not link to %s:\n%s", path, body)
		}
		if status, _ := s.asHost("localhost", "GET", path, nil); status != http.StatusOK {
			t.Errorf("%s is %d", path, status)
		}
	}
}
