package admission_test

import (
	"context"
	"sync"
	"testing"

	"go.opentelemetry.io/otel"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast/holdfast/internal/admission"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/pgtest"
	"github.com/holdfast/holdfast/internal/queues"
	"github.com/holdfast/holdfast/internal/requestrows"
	"github.com/holdfast/holdfast/internal/testkit"
	"github.com/holdfast/holdfast/requests"
)

// spans records the spans of all tests of the package, from its first call on.
var spans = sync.OnceValue(func() *tracetest.SpanRecorder {
	recorder := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder)))
	return recorder
})

// linkedTo counts the ended spans of the name that are linked to the span.
func linkedTo(name string, to trace.SpanContext) (n int) {
	for _, s := range spans().Ended() {
		for _, link := range s.Links() {
			if s.Name() == name && link.SpanContext.TraceID() == to.TraceID() && link.SpanContext.SpanID() == to.SpanID() {
				n++
			}
		}
	}
	return n
}

// The row of a sampled call has its trace, whichever way it is admitted. The
// drain that decides the request and each read of it are linked to the trace.
// The row of a call that is not sampled has none.
func TestTraceIsLinked(t *testing.T) {
	spans()
	b := newNormal(t)
	b.Stock("shoe", 10)
	in := b.Intake(admission.IntakeConfig{})
	admit := map[string]func(ctx context.Context) requests.Request{
		"Submit": func(ctx context.Context) requests.Request {
			r, err := in.Submit(ctx, requestrows.Submission{TenantID: b.Tenant, CartID: "a", VariantID: "shoe", Quantity: 1})
			pgtest.Must(t, err)
			return r
		},
		"SubmitTx": func(ctx context.Context) requests.Request {
			tx := b.Begin()
			r, err := admission.SubmitTx(ctx, tx, b.Inserter, requestrows.Submission{TenantID: b.Tenant, CartID: "b", VariantID: "shoe", Quantity: 1})
			pgtest.Must(t, err)
			pgtest.Must(t, tx.Commit(t.Context()))
			return r
		},
	}
	lane := b.Lane(queues.LaneConfig{})
	for name, verb := range admit {
		call, span := otel.Tracer("test").Start(t.Context(), "POST")
		sampled, unsampled := verb(call), verb(t.Context())
		span.End()
		if n := b.Int(`SELECT count(*) FROM reservation_requests WHERE request_id = $1 AND trace_parent IS NULL`, unsampled.RequestID); n != 1 {
			t.Errorf("%s: a call that is not sampled left a trace", name)
		}
		b.Tick(lane)
		b.Want(sampled, requests.Done, "")
		if n := linkedTo("queues.drain", span.SpanContext()); n != 1 {
			t.Errorf("%s: %d drains are linked to the call, want 1", name, n)
		}
		poll, read := otel.Tracer("test").Start(t.Context(), "GET")
		_, err := requestrows.Get(poll, b.DB, b.Tenant, sampled.RequestID)
		pgtest.Must(t, err)
		read.End()
		if n := linkedTo("GET", span.SpanContext()); n != 1 {
			t.Errorf("%s: %d reads are linked to the call, want 1", name, n)
		}
	}
}

// After their commit, admissions and decisions are counted by lane and outcome.
func TestAdmissionAndDecisionAreCounted(t *testing.T) {
	count := func(name string, labels map[string]string) int64 {
		labels["lane"] = string(lanes.Normal)
		return testkit.Counted(t, name, labels)
	}
	b := newNormal(t)
	b.Stock("shoe", 2)
	in := b.Intake(admission.IntakeConfig{})
	admitted, held := count("holdfast.admission.requests", map[string]string{}), count("holdfast.decision.requests", map[string]string{"outcome": "held"})
	rejected := count("holdfast.decision.requests", map[string]string{"outcome": "out_of_stock"})
	for range 3 {
		_, err := submit(t, in, b.Tenant, "shoe", "")
		pgtest.Must(t, err)
	}
	for range 2 { // one of them a repetition
		_, err := submit(t, in, b.Tenant, "shoe", "key")
		pgtest.Must(t, err)
	}
	b.Tick(b.Lane(queues.LaneConfig{}))
	if n := count("holdfast.admission.requests", map[string]string{}) - admitted; n != 4 {
		t.Errorf("%d admissions are counted, want 4", n)
	}
	if n := count("holdfast.decision.requests", map[string]string{"outcome": "held"}) - held; n != 2 {
		t.Errorf("%d holds are counted, want 2", n)
	}
	if n := count("holdfast.decision.requests", map[string]string{"outcome": "out_of_stock"}) - rejected; n != 2 {
		t.Errorf("%d rejections are counted, want 2", n)
	}
}
