package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// contender is one of the implementations that a suite compares.
type contender struct {
	name string
	// what is its name in the plot; empty: not in the plot.
	what string
	// expected is the contender's rate per second when the targets were set, in
	// a run whose raw statement did rawExpected; 0 if it was not measured then.
	expected float64

	// prepare makes what the repetition needs, outside the clock. run measures
	// for about the given time. check fails if the rows do not agree with what
	// run counted.
	prepare func(ctx context.Context) error
	run     func(ctx context.Context, long time.Duration) (sample, error)
	check   func(ctx context.Context, s sample) error
}

// sample is what one repetition found.
type sample struct {
	count   int64
	elapsed time.Duration
	// p50 and p99 of the callers that waited for an answer; 0 where none did.
	p50, p99 time.Duration
	// logged is the number of bytes of WAL per request; 0 unless the contender
	// is weighed.
	logged float64
	// cpu is the database's CPU time per request, in µs; 0 unless it is measured.
	cpu float64
}

func (s sample) rate() float64 {
	if s.elapsed <= 0 {
		return 0
	}
	return float64(s.count) / s.elapsed.Seconds()
}

// series are the repetitions of one contender.
type series struct {
	contender *contender
	samples   []sample
}

func (s *series) rates() []float64 { return s.each(sample.rate) }

func (s *series) each(of func(sample) float64) []float64 {
	values := make([]float64, len(s.samples))
	for i := range s.samples {
		values[i] = of(s.samples[i])
	}
	return values
}

// rawExpected is the raw statement's rate per second on the machine where the
// targets were set: the middle of 50,000 to 57,000.
const rawExpected = 53_500

// validShare is the share of its expected rate, rescaled by the raw statement's
// rate in the same run, that a baseline must reach for a valid comparison.
const validShare = 0.8

// comparison has the repetitions of each of a suite's contenders.
type comparison map[string]*series

// compare warms the contenders up, then repeats them in turn.
func (b *bench) compare(ctx context.Context, contenders ...*contender) (comparison, error) {
	c := make(comparison)
	for rep := b.first(); rep <= b.reps; rep++ {
		for _, s := range contenders {
			long, label := b.long, fmt.Sprintf("%d/%d", rep, b.reps)
			if rep == 0 {
				long, label = b.long/2, "warm-up"
			}
			found, err := b.repeat(ctx, s, long)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", s.name, label, err)
			}
			b.progress("%-34s %-8s %9.0f/s", s.name, label, found.rate())
			if c[s.name] == nil {
				c[s.name] = &series{contender: s}
			}
			if rep > 0 {
				c[s.name].samples = append(c[s.name].samples, found)
				if s.name == rawName {
					b.rawRates = append(b.rawRates, found.rate())
				}
			}
		}
	}
	return c, nil
}

// repeat is one repetition. It begins after a checkpoint, so that no contender
// pays for the pages that another one wrote, unless the suite sets writesOn.
func (b *bench) repeat(ctx context.Context, s *contender, long time.Duration) (sample, error) {
	if !b.writesOn {
		if err := b.checkpoint(ctx); err != nil {
			return sample{}, err
		}
	}
	if s.prepare != nil {
		if err := s.prepare(ctx); err != nil {
			return sample{}, err
		}
	}
	found, err := s.run(ctx, long)
	if err != nil {
		return sample{}, err
	}
	if s.check != nil {
		err = s.check(ctx, found)
	}
	return found, err
}

// best is the contender with the highest median rate.
func (c comparison) best(names ...string) string {
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(median(c[a].rates()), median(c[b].rates())) })
}

// over is the ratio of two contenders' rates, repetition by repetition.
func (c comparison) over(measure, ours, other string) Measure {
	return c.overBy(measure, ours, other, sample.rate)
}

// overBy is over for another value than the rate.
func (c comparison) overBy(measure, ours, other string, of func(sample) float64) Measure {
	m := ratioOf(measure, c[ours].each(of), c[other].each(of))
	m.note("over %s", other)
	c.validate(&m, other)
	return m
}

// ratioOf is the ratio of the two lists of values, repetition by repetition.
func ratioOf(measure string, ours, theirs []float64) Measure {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ratio(ours[i], theirs[i])
	}
	m := newMeasure(measure, "ratio", ratios)
	m.between(median(ours), median(theirs))
	return m
}

// validate marks a measure whose baseline was too slow for the comparison.
func (c comparison) validate(m *Measure, other string) {
	expected, raw := c[other].contender.expected, c[rawName]
	if expected == 0 || raw == nil {
		return
	}
	scale := median(raw.rates()) / rawExpected
	if got, want := median(c[other].rates()), validShare*expected*scale; got < want {
		m.invalid("invalid: %s did %.0f/s, less than %.0f/s, which is %g × %.0f rescaled by the raw statement (%.2f)",
			other, got, want, validShare, expected, scale)
	}
}
