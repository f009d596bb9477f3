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
	"github.com/holdfast/holdfast/metered"
	"github.com/holdfast/holdfast/requests"
)

// spans are those of the whole process from now on: its tracer goes by the first provider that it is given.
var spans = sync.OnceValue(func() *tracetest.InMemoryExporter {
	exporter := tracetest.NewInMemoryExporter()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter)))
	return exporter
})

// TestTokenIsNowhere looks for the plaintext of tokens in every table, answer, log line and span. Only the answer that
// minted one has it.
func TestTokenIsNowhere(t *testing.T) {
	t.Parallel()
	s := newMeteredShop(t, unlimited, metered.Rate{Limit: 5, Window: metered.RateWindowMax})
	exported := spans()
	s.stock("shirt", `{"stock":10,"admission":"token"}`)
	s.stock("sock", `{"stock":10}`)
	s.stock("song", `{"tracked":false,"admission":"token"}`)
	keyed := s.call(200, "POST", "/v1/admissions", `{"subject":"c","variant_id":"shirt"}`, keyHeader, "mint").text(t, "token")
	spent, unspent := s.mint(`{"subject":"c"}`), s.mint(`{"subject":"c"}`)

	var seen strings.Builder
	tell := func(r reply) {
		t.Helper()
		fmt.Fprintln(&seen, r.status, r.header, string(r.body))
	}
	tell(s.call(200, "POST", "/v1/admissions", `{"subject":"c","variant_id":"shirt"}`, keyHeader, "mint"))
	tell(s.want(202, "c", "shirt", admissionHeader, keyed, keyHeader, "add"))
	tell(s.want(202, "c", "shirt", admissionHeader, unspent, keyHeader, "add"))
	tell(s.want(200, "c", "song", admissionHeader, spent))
	tell(s.want(202, "c", "sock", admissionHeader, unspent))
	for _, refused := range []string{keyed, spent, unspent + "x", strings.ToUpper(unspent), unspent[4:]} {
		tell(s.want(403, "c", "shirt", admissionHeader, refused, keyHeader, "refused"))
	}
	tell(s.want(403, "c", "shirt", admissionHeader, unspent, customerHeader, "other"))
	tell(s.want(202, "c", "sock"))
	tell(s.want(202, "c", "sock"))
	tell(s.want(429, "c", "shirt", admissionHeader, unspent))
	tell(s.call(422, "POST", "/v1/carts/c/items", `{}`, admissionHeader, unspent))
	s.decide()
	tell(s.call(200, "GET", "/v1/carts/c", ""))
	s.lose()
	tell(s.want(503, "c", "shirt", admissionHeader, unspent))
	tell(s.call(503, "POST", "/v1/admissions", `{"subject":"c"}`))
	for _, line := range s.dump() {
		fmt.Fprintln(&seen, line)
	}
	fmt.Fprintln(&seen, s.logged.String())
	for _, span := range exported.GetSpans() {
		fmt.Fprintln(&seen, span.Name, span.Attributes, span.Events, span.Status)
	}

	text := seen.String()
	secrettest.Look(t, text, keyed, spent, unspent)
	for _, want := range []string{
		"expiring_tokens: ", "reservation_requests: ", "idempotency_keys: ", "river.river_job: ", "a call was not served", "httpapi.mint_admission",
		"admission_refused", hex.EncodeToString([]byte(`{"token":null,`)),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing was captured of %s", want)
		}
	}
}

// dump is every row of every table as text, in which bytes are hexadecimal.
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
	s.admitBy(nowhere, requests.IntakeConfig{Metered: true})
	s.service.pool = nowhere
}
