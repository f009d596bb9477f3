package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// exportedSpan is a span as a collector receives it.
type exportedSpan struct {
	name, trace, span, instance, version string
	links                                []string // trace and span
}

// otlpReceiver keeps the spans that programs export by OTLP over HTTP.
type otlpReceiver struct {
	URL string

	mu    sync.Mutex
	spans []exportedSpan
	raw   strings.Builder // all data received, including metrics
}

func newReceiver(t *testing.T) *otlpReceiver {
	t.Helper()
	c := &otlpReceiver{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the program ended, or gave up, while it was sending
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.raw.Write(body)
		if r.URL.Path == "/v1/traces" {
			c.take(t, body)
		}
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *otlpReceiver) take(t *testing.T, body []byte) {
	t.Helper()
	var request collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &request); err != nil {
		t.Error(err)
		return
	}
	for _, resource := range request.GetResourceSpans() {
		about := map[string]string{}
		for _, kv := range resource.GetResource().GetAttributes() {
			about[kv.GetKey()] = kv.GetValue().GetStringValue()
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				span := exportedSpan{
					name: s.GetName(), trace: hex.EncodeToString(s.GetTraceId()), span: hex.EncodeToString(s.GetSpanId()),
					instance: about["service.instance.id"], version: about["service.version"],
				}
				for _, link := range s.GetLinks() {
					span.links = append(span.links, hex.EncodeToString(link.GetTraceId())+"/"+hex.EncodeToString(link.GetSpanId()))
				}
				c.spans = append(c.spans, span)
			}
		}
	}
}

// find returns the spans for which match holds.
func (c *otlpReceiver) find(match func(exportedSpan) bool) (found []exportedSpan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if match(s) {
			found = append(found, s)
		}
	}
	return found
}

// A collector receives the sampled call of a buyer. The drain that decided it
// and the read of its outcome are linked to it. Two processes are two
// instances, and the data has no secret.
func TestTraceOfABuyer(t *testing.T) {
	t.Parallel()
	shop, receiver := programtest.NewFixture(t), newReceiver(t)
	env := shop.Env("LOG_LEVEL", "warn", "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL, "OTEL_EXPORTER_OTLP_COMPRESSION", "none",
		"OTEL_BSP_SCHEDULE_DELAY", "100")
	var services []service
	for range 2 {
		process := programtest.StartProcess(t, env, "run", "--port", "0")
		services = append(services, ready(t, process.Stdout))
	}
	s := services[0]
	s.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":100}`, http.StatusOK)
	services[1].call(http.MethodGet, "/v1/stocks/shirt", "", http.StatusOK)
	const sampled, unsampled = "0af7651916cd43dd8448eb211c80319c", "1bf7651916cd43dd8448eb211c80319c"
	id := s.addInTrace("cart-1", sampled, "01")
	s.addInTrace("cart-2", unsampled, "00")
	pgtest.Until(t, "the requests are done", func() bool {
		return s.call(http.MethodGet, "/v1/requests/"+id+"?wait=5", "", http.StatusOK)["status"] == "done" &&
			shop.Int(`SELECT count(*) FROM reservation_requests WHERE status = 'done'`) == 2
	})

	var call string // the span in its row, to which the others are linked
	pgtest.Until(t, "the call is received", func() bool {
		for _, s := range receiver.find(func(s exportedSpan) bool { return s.trace == sampled && s.links == nil }) {
			if shop.Int(`SELECT count(*) FROM reservation_requests WHERE trace_parent = '00-`+s.trace+`-`+s.span+`-01'`) == 1 {
				call = s.trace + "/" + s.span
			}
		}
		return call != ""
	})
	for name, match := range map[string]func(exportedSpan) bool{
		"the drain": func(s exportedSpan) bool { return s.name == "queues.drain" },
		"the read":  func(s exportedSpan) bool { return s.name != "queues.drain" },
	} {
		pgtest.Until(t, name+" is linked to the call", func() bool {
			return len(receiver.find(func(s exportedSpan) bool { return match(s) && slices.Contains(s.links, call) })) > 0
		})
	}
	if linked := receiver.find(func(s exportedSpan) bool { return strings.Contains(strings.Join(s.links, " "), unsampled) }); len(linked) > 0 {
		t.Errorf("%d spans are linked to a call that was not sampled", len(linked))
	}
	if n := shop.Int(`SELECT count(*) FROM reservation_requests WHERE trace_parent IS NOT NULL`); n != 1 {
		t.Errorf("%d requests have a trace, want that of the sampled call", n)
	}
	instances := map[string]bool{}
	for _, s := range receiver.find(func(exportedSpan) bool { return true }) {
		instances[s.instance] = true
		if s.instance == "" || s.version == "" {
			t.Fatalf("a span without an instance or a version: %+v", s)
		}
	}
	if len(instances) != 2 {
		t.Errorf("%d instances, want 2", len(instances))
	}
	receiver.mu.Lock()
	defer receiver.mu.Unlock()
	if strings.Contains(receiver.raw.String(), s.key) {
		t.Error("an API key was exported")
	}
}

// An invalid traceparent begins a new trace, and the call is served: its
// request is decided, and its row names a span of that trace.
func TestMalformedTraceparent(t *testing.T) {
	t.Parallel()
	shop, receiver := programtest.NewFixture(t), newReceiver(t)
	process := programtest.StartProcess(t, shop.Env("LOG_LEVEL", "warn", "OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL,
		"OTEL_EXPORTER_OTLP_COMPRESSION", "none", "OTEL_BSP_SCHEDULE_DELAY", "100"), "run", "--port", "0")
	s := ready(t, process.Stdout)
	s.call(http.MethodPut, "/v1/stocks/shirt", `{"stock":100}`, http.StatusOK)
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	malformed := []string{
		"", "-", "sampled", "00-" + trace + "-" + span, "00-" + trace + "-" + span + "-1", "00-" + trace + "-" + span + "-01-more",
		"ff-" + trace + "-" + span + "-01", "00-" + strings.Repeat("0", 32) + "-" + span + "-01", "00-" + trace + "-" + strings.Repeat("0", 16) + "-01",
		"00-" + strings.ToUpper(trace) + "-" + span + "-01", "00-" + trace[:31] + "g-" + span + "-01", "00-" + strings.Repeat("a", 4000) + "-" + span + "-01",
	}
	var ids []string
	for i, header := range malformed {
		ids = append(ids, s.addUnder(fmt.Sprintf("cart-%d", i), header))
	}
	for _, id := range ids {
		pgtest.Until(t, "the request is done", func() bool {
			return s.call(http.MethodGet, "/v1/requests/"+id+"?wait=5", "", http.StatusOK)["status"] == "done"
		})
	}
	for i, id := range ids {
		pgtest.Until(t, fmt.Sprintf("the row of traceparent %q names a span that was exported", malformed[i]), func() bool {
			return len(receiver.find(func(s exportedSpan) bool {
				return shop.Int(`SELECT count(*) FROM reservation_requests WHERE request_id = '`+id+`' AND trace_parent = '00-`+s.trace+`-`+s.span+`-01'`) == 1
			})) == 1
		})
	}
	if n := shop.Int(`SELECT count(DISTINCT split_part(trace_parent, '-', 2)) FROM reservation_requests`); n != int64(len(malformed)) {
		t.Errorf("%d traces for %d calls, want a new one for each", n, len(malformed))
	}
	if spans := receiver.find(func(s exportedSpan) bool { return strings.EqualFold(s.trace, trace) }); len(spans) > 0 {
		t.Errorf("%d spans are of the trace that a malformed header names", len(spans))
	}
}

// addInTrace adds one shirt to the cart inside a trace. The flags set whether
// the trace is sampled.
func (s service) addInTrace(cart, trace, flags string) (requestID string) {
	s.t.Helper()
	return s.addUnder(cart, fmt.Sprintf("00-%s-b7ad6b7169203331-%s", trace, flags))
}

// addUnder adds one shirt to the cart with a traceparent.
func (s service) addUnder(cart, traceparent string) (requestID string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/carts/"+cart+"/items", strings.NewReader(`{"variant_id":"shirt","quantity":1}`))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Traceparent", traceparent)
	return s.do(r, http.StatusAccepted)["request_id"].(string)
}
