package main

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast/holdfast/bench/load"
)

// pickupRate is how many requests per second are sent: few, so that the system
// is idle in between.
const pickupRate = 25

// pickup sends one request after the other to an idle system, to both lanes in
// turn.
func (b *bench) pickup(ctx context.Context) ([]Measure, error) {
	return b.withDeployment(ctx, func(f *deployment) ([]Measure, error) { return b.pickupOf(ctx, f) })
}

func (b *bench) pickupOf(ctx context.Context, f *deployment) ([]Measure, error) {
	target := f.target()
	target.Wait = waitSeconds
	lanes := []struct {
		name string
		next func() load.Item
	}{{"hot", toHot}, {"normal", toNormal}}
	latencies := make(map[string][]time.Duration)
	var p99s []float64
	for rep := b.first(); rep <= b.reps; rep++ {
		var both []time.Duration
		for _, lane := range lanes {
			r, err := load.Open(ctx, target, pickupRate, 1, 2*b.long, lane.next)
			if err != nil {
				return nil, err
			}
			b.progress("%-8s p50 %.1f ms, p99 %.1f ms", lane.name, milliseconds(r.Quantile(0.5)), milliseconds(r.Quantile(0.99)))
			both = append(both, r.Latencies...)
			if rep > 0 {
				latencies[lane.name] = append(latencies[lane.name], r.Latencies...)
			}
		}
		if rep > 0 {
			p99s = append(p99s, milliseconds(quantile(both, 0.99)))
		}
	}
	m := newMeasure("pickup_p99_ms", "ms", p99s)
	// A repetition has too few requests for a p99, so the value is the p99 of
	// all repetitions together.
	m.Value = milliseconds(quantile(slices.Concat(latencies["hot"], latencies["normal"]), 0.99))
	m.Ours = m.Value
	m.evaluate()
	for _, lane := range lanes {
		of := latencies[lane.name]
		m.note("%s: p50 %.1f, p99 %.1f ms of %d", lane.name, milliseconds(quantile(of, 0.5)), milliseconds(quantile(of, 0.99)), len(of))
	}
	return []Measure{m}, f.checkRows(ctx, sample{})
}
