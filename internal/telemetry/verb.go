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

// scope is the instrumentation scope of this project's instruments.
const scope = "github.com/holdfast/holdfast"

// The outcomes that are recorded when the caller of done passes an empty one.
const (
	outcomeOK    = "ok"
	outcomeError = "error"
)

var tracer = sync.OnceValue(func() trace.Tracer { return otel.Tracer(scope) })

var verbDuration = durations("holdfast.verb.duration", "Duration of a verb, by its outcome.", verbBounds)

// Verb opens a span called name and starts the clock of one value in the
// histogram holdfast.verb.duration, in seconds. The caller does its work under
// the returned context and calls done once, on success and on failure. A second
// call does nothing.
//
// name is "package.verb", such as "admission.admit". The context's correlation
// id goes to the span only. The outcome passed to done is one of the verb's
// fixed words ("held", "out_of_stock"). An empty outcome is "ok", or "error" if
// err is not nil. A rejection is an outcome: pass a nil err with it. An err
// marks the span as failed.
func Verb(ctx context.Context, name string) (_ context.Context, done func(outcome string, err error)) {
	start := time.Now()
	ctx, span := tracer().Start(ctx, name)
	if id := Correlation(ctx); id != "" && span.IsRecording() {
		span.SetAttributes(attribute.String("correlation_id", id))
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
			h.Record(ctx, time.Since(start).Seconds(), labelsOf(ctx, name, outcome))
		}
	}
}

type verbOutcome struct{ verb, outcome, cell string }

// verbLabels are the labels of each outcome of each verb. They are fixed words and
// the names of cells, so there are few.
var verbLabels sync.Map // of verbOutcome: metric.MeasurementOption

func labelsOf(ctx context.Context, verb, outcome string) metric.MeasurementOption {
	key := verbOutcome{verb, outcome, Cell(ctx)}
	labels, ok := verbLabels.Load(key)
	if !ok {
		labels, _ = verbLabels.LoadOrStore(key, under(ctx, attribute.String("verb", verb), attribute.String("outcome", outcome)))
	}
	return labels.(metric.MeasurementOption) //nolint:forcetypeassert // only this function stores
}

func orDefault(outcome string, err error) string {
	switch {
	case outcome != "":
		return outcome
	case err != nil:
		return outcomeError
	default:
		return outcomeOK
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
