package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/secrettest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// collector keeps the data that telemetry sends to it, unchanged, so text
// appears in it as plain text.
type collector struct {
	URL string

	mu       sync.Mutex
	received map[string]string // by path
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{received: make(map[string]string)}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.received[r.URL.Path] += string(body); err != nil || r.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: error %v, encoding %q", r.URL.Path, err, r.Header.Get("Content-Encoding"))
		}
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *collector) at(path string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received[path]
}

// The program reports as much as possible: a log at debug, spans of calls and
// of each statement, metrics. A token that it minted, admitted or refused is
// not in these reports, in a row, or in any answer except the one that minted
// it.
func TestTokenIsNotShown(t *testing.T) {
	t.Parallel()
	shop, telemetry := programtest.NewFixture(t), newCollector(t)
	env := shop.Env(
		"METERED_COMMANDS_ENABLED", "true", "CUSTOMER_BUDGET", "2/24h", "LOG_LEVEL", "debug", "STOP_WITHIN", "5m", // all telemetry is sent
		"OTEL_EXPORTER_OTLP_ENDPOINT", telemetry.URL, "OTEL_EXPORTER_OTLP_COMPRESSION", "none",
	)
	if _, err := program(t, env).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	api := programtest.StartProcess(t, env)
	front := openAt(t, shop, api.Stderr)
	front.expect(front.send(http.MethodPut, "/v1/stocks/ticket", `{"stock":10,"admission":"token"}`), http.StatusOK, "")
	spent, second, kept, refused := front.mint("ann"), front.mint("ann"), front.mint("ann"), front.mint("bob")
	var answers []answer
	for _, c := range []struct {
		token  string
		status int
		code   string
	}{
		{spent, http.StatusAccepted, ""},
		{spent, http.StatusForbidden, "admission_refused"},
		{refused, http.StatusForbidden, "admission_refused"},
		{refused + "x", http.StatusForbidden, "admission_refused"},
		{second, http.StatusAccepted, ""},
		{kept, http.StatusTooManyRequests, "over_budget"},
	} {
		answers = append(answers, front.expect(front.add("ann", c.token, ""), c.status, c.code))
	}
	answers = append(answers,
		front.expect(front.send(http.MethodPost, "/v1/carts/cart-ann/items", `{}`, "Admission-Token", refused, "Customer-Id", "ann"), http.StatusUnprocessableEntity, "invalid"),
		front.expect(front.send(http.MethodPost, "/v1/admissions", `{"subject":""}`, "Admission-Token", refused), http.StatusUnprocessableEntity, "invalid"))
	metrics := front.page("/metrics")
	api.Signal(syscall.SIGTERM)
	if code := api.Wait(); code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, api.Stderr)
	}
	for what, c := range map[string]struct{ text, has string }{
		"log":        {api.Stderr.String(), "the API serves"},
		"output":     {api.Stdout.String(), ""},
		"traces":     {telemetry.at("/v1/traces"), "POST /v1/carts/{cart_id}/items"},
		"statements": {telemetry.at("/v1/traces"), "INSERT INTO expiring_tokens"},
		"events":     {telemetry.at("/v1/traces"), "metered.mint"},
		"metrics":    {telemetry.at("/v1/metrics"), "holdfast.verb.duration"},
		"scraped":    {metrics, "holdfast_admission_refusals"},
		"answers":    {secrettest.Shown(answers), "admission_refused"},
		"rows":       {shop.Dump(), "expiring_tokens: "},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(c.text, c.has) {
				t.Errorf("nothing was captured of %q", c.has)
			}
			secrettest.AssertAbsent(t, c.text, spent, second, kept, refused)
		})
	}
}
