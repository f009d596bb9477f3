package httpapi

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast/holdfast/internal/secrettest"
	"github.com/holdfast/holdfast/ratelimit"
)

// spans are the spans of the whole process from now on, because its tracer uses
// the first provider that is set.
var spans = sync.OnceValue(func() *tracetest.InMemoryExporter {
	exporter := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	return exporter
})

// TestTokenIsNowhere searches every table, answer, log line and span for the
// plaintext of tokens. Only the answer that minted a token has it.
func TestTokenIsNowhere(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, ratelimit.Rate{Limit: 5, Window: ratelimit.RateWindowMax})
	exported := spans()
	s.stock("shirt", `{"stock":10,"admission":"token"}`)
	s.stock("sock", `{"stock":10}`)
	s.stock("song", `{"tracked":false,"admission":"token"}`)
	keyed := s.call(200, "POST", "/v1/admissions", `{"subject":"c","variant_id":"shirt"}`, keyHeader, "mint").text(t, "token")
	spent, unspent := s.mint(`{"subject":"c"}`), s.mint(`{"subject":"c"}`)

	var seen strings.Builder
	record := func(r reply) {
		t.Helper()
		fmt.Fprintln(&seen, r.status, r.header, string(r.body))
	}
	record(s.call(200, "POST", "/v1/admissions", `{"subject":"c","variant_id":"shirt"}`, keyHeader, "mint"))
	record(s.want(202, "c", "shirt", admissionHeader, keyed, keyHeader, "add"))
	record(s.want(202, "c", "shirt", admissionHeader, unspent, keyHeader, "add"))
	record(s.want(200, "c", "song", admissionHeader, spent))
	record(s.want(202, "c", "sock", admissionHeader, unspent))
	for _, refused := range []string{keyed, spent, unspent + "x", strings.ToUpper(unspent), unspent[4:]} {
		record(s.want(403, "c", "shirt", admissionHeader, refused, keyHeader, "refused"))
	}
	record(s.want(403, "c", "shirt", admissionHeader, unspent, customerHeader, "other"))
	record(s.want(202, "c", "sock"))
	record(s.want(202, "c", "sock"))
	record(s.want(429, "c", "shirt", admissionHeader, unspent))
	record(s.call(422, "POST", "/v1/carts/c/items", `{}`, admissionHeader, unspent))
	s.decide()
	record(s.call(200, "GET", "/v1/carts/c", ""))
	s.lose()
	record(s.want(503, "c", "shirt", admissionHeader, unspent))
	record(s.call(503, "POST", "/v1/admissions", `{"subject":"c"}`))
	for _, line := range s.dump() {
		fmt.Fprintln(&seen, line)
	}
	fmt.Fprintln(&seen, s.logged.String())
	for _, span := range exported.GetSpans() {
		fmt.Fprintln(&seen, span.Name, span.Attributes, span.Events, span.Status)
	}

	text := seen.String()
	secrettest.AssertAbsent(t, text, keyed, spent, unspent)
	for _, want := range []string{
		"expiring_tokens: ", "reservation_requests: ", "idempotency_keys: ", "river.river_job: ", "a request was not served", "httpapi.mint_admission",
		"admission_refused", hex.EncodeToString([]byte(`{"Token":"",`)),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing was captured of %s", want)
		}
	}
}

// dump returns every row of every table as text, in which bytes are
// hexadecimal.
func (s *shop) dump() (lines []string) {
	s.t.Helper()
	for _, table := range s.rows(`SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'river')`) {
		for _, row := range s.rows(`SELECT x::text FROM ` + table + ` AS x`) {
			lines = append(lines, strings.TrimPrefix(table, "public.")+": "+row)
		}
	}
	return lines
}

// lose takes the database away from the service.
func (s *shop) lose() {
	s.t.Helper()
	nowhere, err := pgxpool.New(s.t.Context(), "postgres://nobody@127.0.0.1:1/none?connect_timeout=1")
	s.must(err)
	s.t.Cleanup(nowhere.Close)
	s.serve(nowhere, s.config)
}
