package main

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// With METRICS_ADDRESS the metrics are on another port than the public one.
func TestMetricsAddress(t *testing.T) {
	t.Parallel()
	shop := programtest.NewFixture(t)
	port := freePort(t)
	// The API runs in a separate process, because programs in one process share
	// its metrics.
	api := programtest.StartProcess(t, shop.Env("PORT", "0", "METRICS_ADDRESS", "127.0.0.1:"+port))
	line := api.Stderr.Line(t, "the API serves")
	public := regexp.MustCompile(`"address":"[^"]*:(\d+)"`).FindStringSubmatch(line)[1]
	get := func(port string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+"/metrics", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	if status, _ := get(public); status != http.StatusNotFound {
		t.Errorf("the public port answers %d, want 404", status)
	}
	pgtest.Until(t, "the gauges of the database's state are shown", func() bool {
		_, page := get(port)
		return strings.Contains(page, "holdfast_lane_depth")
	})
	api.Signal(syscall.SIGTERM)
	if code := api.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// freePort returns a port of the loopback interface that was free a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	pgtest.Must(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	pgtest.Must(t, err)
	return port
}
