package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceParentKey is the header of W3C Trace Context, https://www.w3.org/TR/trace-context/.
const traceParentKey = "traceparent"

// TraceParent returns the context's span in the form of the W3C header traceparent, if it is sampled, or "": a trace that is
// recorded nowhere is not worth storing.
func TraceParent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceParentKey]
}

// linksMax is how many links a span keeps by the SDK's default.
const linksMax = 128

// Links collects links to other traces. The zero value is ready for use.
type Links struct{ links []trace.Link }

// Add adds a link to the span of a trace parent, unless it is empty or malformed, or the links are already as many as a span
// keeps.
func (l *Links) Add(traceParent string) {
	if traceParent == "" || len(l.links) == linksMax {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceParentKey: traceParent})
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		l.links = append(l.links, trace.Link{SpanContext: span})
	}
}

// To links the context's span, if it is recorded, to what was collected. It is linked, rather than made a child, because
// one transaction decides the requests of thousands of traces.
func (l *Links) To(ctx context.Context) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	for _, link := range l.links {
		span.AddLink(link)
	}
}
