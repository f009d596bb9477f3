package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope names this project's instruments in whatever backend receives them.
const scope = "github.com/holdfast/holdfast"

// Outcomes used where the caller of done names none.
const (
	OutcomeOK    = "ok"
	OutcomeError = "error"
)

var tracer = sync.OnceValue(func() trace.Tracer { return otel.Tracer(scope) })

var verbDuration = durations("holdfast.verb.duration", "Time a verb took, by what came of it.", verbBounds)

// Verb opens a span called name and starts the clock of one value in the histogram holdfast.verb.duration, whose unit
// is seconds. The caller does its work under the returned context and calls done once, whatever happened; a second call
// does nothing.
//
// name is "package.verb", such as "requests.admit". attrs and the context's correlation id go to the span only. outcome
// is one of a verb's own fixed words ("held", "out_of_stock"); empty, it is OutcomeOK, or OutcomeError when err is not
// nil. A rejection is an outcome: pass a nil err with it. An err marks the span as failed.
func Verb(ctx context.Context, name string, attrs ...attribute.KeyValue) (_ context.Context, done func(outcome string, err error)) {
	start := time.Now()
	ctx, span := tracer().Start(ctx, name)
	if span.IsRecording() {
		span.SetAttributes(attrs...)
		if id := Correlation(ctx); id != "" {
			span.SetAttributes(attribute.String("correlation_id", id))
		}
	}
	ended := false
	return ctx, func(outcome string, err error) {
		if ended {
			return
		}
		ended = true
		outcome = orDefault(outcome, err)
		endSpan(span, outcome, err)
		if h := verbDuration(); h.Enabled(ctx) {
			h.Record(ctx, time.Since(start).Seconds(),
				metric.WithAttributes(attribute.String("verb", name), attribute.String("outcome", outcome)))
		}
	}
}

func orDefault(outcome string, err error) string {
	switch {
	case outcome != "":
		return outcome
	case err != nil:
		return OutcomeError
	default:
		return OutcomeOK
	}
}

func endSpan(span trace.Span, outcome string, err error) {
	if span.IsRecording() {
		span.SetAttributes(attribute.String("outcome", outcome))
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, outcome)
		}
	}
	span.End()
}
