package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

type correlationKey struct{}

// WithCorrelation returns a context that carries id, the name of one call in
// the audit log, the logs and the traces. An empty id hides the id that ctx
// carries.
func WithCorrelation(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, correlationKey{}, id)
}

// Correlation returns the correlation id that ctx carries, or "" if it carries
// none.
func Correlation(ctx context.Context) string {
	id, _ := ctx.Value(correlationKey{}).(string)
	return id
}

type cellKey struct{}

// WithCell returns a context whose work is in the cell of that name: what is counted
// under it has the label cell. An empty name is that of the only cell, which has no
// label.
func WithCell(ctx context.Context, cell string) context.Context {
	if cell == "" {
		return ctx
	}
	return context.WithValue(ctx, cellKey{}, cell)
}

// Cell returns the name of the cell that ctx carries, or "" if it carries none.
func Cell(ctx context.Context) string {
	cell, _ := ctx.Value(cellKey{}).(string)
	return cell
}

// LogHandler wraps inner. Each record logged with a context gets that context's
// correlation_id and, inside a trace, its trace_id, span_id and trace_sampled.
// A value that the context lacks is left out. In a logger with an open group,
// the ids are inside the group.
func LogHandler(inner slog.Handler) slog.Handler { return logHandler{inner} }

type logHandler struct{ slog.Handler }

func (h logHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := Correlation(ctx); id != "" {
		r.AddAttrs(slog.String("correlation_id", id))
	}
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()),
			slog.Bool("trace_sampled", span.IsSampled()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{h.Handler.WithAttrs(attrs)}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.Handler.WithGroup(name)}
}

// traceParentKey is the header of W3C Trace Context,
// https://www.w3.org/TR/trace-context/.
const traceParentKey = "traceparent"

// TraceParent returns the context's span in the form of the W3C header
// traceparent if it is sampled, else "". A trace that is not recorded is not
// worth storing.
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

// Add adds a link to the span of a trace parent. It ignores an empty or
// malformed trace parent, and any link after the first 128.
func (l *Links) Add(traceParent string) {
	if traceParent == "" || len(l.links) == linksMax {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceParentKey: traceParent})
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		l.links = append(l.links, trace.Link{SpanContext: span})
	}
}

// To links the context's span, if it is recorded, to the collected spans. A
// link is used and not a parent, because one transaction decides the requests
// of thousands of traces.
func (l *Links) To(ctx context.Context) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	for _, link := range l.links {
		span.AddLink(link)
	}
}
