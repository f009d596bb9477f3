package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// counter returns a function that makes the counter the first time it is called.
func counter(name, description string) func() metric.Int64Counter {
	return sync.OnceValue(func() metric.Int64Counter {
		c, err := otel.Meter(scope).Int64Counter(name, metric.WithDescription(description))
		if err != nil {
			otel.Handle(err)
		}
		return c
	})
}

// upDownCounter is counter for a sum that also decreases.
func upDownCounter(name, description string) func() metric.Int64UpDownCounter {
	return sync.OnceValue(func() metric.Int64UpDownCounter {
		c, err := otel.Meter(scope).Int64UpDownCounter(name, metric.WithDescription(description))
		if err != nil {
			otel.Handle(err)
		}
		return c
	})
}

// sizes returns a function that makes a histogram of sizes the first time it is called.
func sizes(name, description string) func() metric.Int64Histogram {
	return sync.OnceValue(func() metric.Int64Histogram {
		h, err := otel.Meter(scope).Int64Histogram(name, metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(sizeBounds...))
		if err != nil {
			otel.Handle(err)
		}
		return h
	})
}

// durations returns a function that makes a histogram of seconds the first time it is called.
func durations(name, description string, bounds []float64) func() metric.Float64Histogram {
	return sync.OnceValue(func() metric.Float64Histogram {
		h, err := otel.Meter(scope).Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(bounds...))
		if err != nil {
			otel.Handle(err)
		}
		return h
	})
}

// Limits of the buckets.
var (
	// sizeBounds are numbers of requests: a lone one, up to the largest batch.
	sizeBounds = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000}
	// verbBounds are seconds: a prepared statement takes less than the first, and a drain is cut off at the last but one.
	verbBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	// waitBounds are seconds: an idle lane decides within the first few, and an overloaded one rejects what is older than
	// ten minutes.
	waitBounds = []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}
)
