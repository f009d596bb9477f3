package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// side is one of the ways that a suite compares.
type side struct {
	name string
	// what is how the plot calls it; empty: not in the plot.
	what string
	// expected is what the side did a second when the targets were set, beside the raw statement's rawExpected; 0 if
	// nobody measured it.
	expected float64

	// prepare makes what the repetition needs, outside the clock. run measures about as long as it is told, and check
	// fails if the rows don't agree with what run counted.
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
	// logged is how many bytes the log grew by for each request; 0 unless the side is weighed.
	logged float64
}

func (s sample) rate() float64 {
	if s.elapsed <= 0 {
		return 0
	}
	return float64(s.count) / s.elapsed.Seconds()
}

// series are the repetitions of one side.
type series struct {
	side    *side
	samples []sample
}

func (s *series) rates() []float64 { return s.each(sample.rate) }

func (s *series) each(of func(sample) float64) []float64 {
	values := make([]float64, len(s.samples))
	for i := range s.samples {
		values[i] = of(s.samples[i])
	}
	return values
}

// rawExpected is what the raw statement did a second on the machine where the targets were set: the middle of 50,000 to
// 57,000.
const rawExpected = 53_500

// soundShare is the share of its expected speed, rescaled by the raw statement's in the same run, that a side must reach
// for a comparison with it to mean anything.
const soundShare = 0.8

// comparison is what a suite's sides did.
type comparison map[string]*series

// compare warms the sides up, then repeats them in turn.
func (b *bench) compare(ctx context.Context, sides ...*side) (comparison, error) {
	c := make(comparison)
	for rep := b.first(); rep <= b.reps; rep++ {
		for _, s := range sides {
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
				c[s.name] = &series{side: s}
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

// repeat is one repetition. Its writes begin after a checkpoint, so that none is measured in the middle of another side's,
// unless the suite writes on.
func (b *bench) repeat(ctx context.Context, s *side, long time.Duration) (sample, error) {
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

// best is the fastest of the sides, by its median.
func (c comparison) best(names ...string) string {
	return slices.MaxFunc(names, func(a, b string) int { return cmp.Compare(median(c[a].rates()), median(c[b].rates())) })
}

// over is the ratio of two sides' speeds, repetition by repetition.
func (c comparison) over(measure, ours, other string) Measure {
	return c.overBy(measure, ours, other, sample.rate)
}

// overBy is over for something else than the speed.
func (c comparison) overBy(measure, ours, other string, of func(sample) float64) Measure {
	m := ratioOf(measure, c[ours].each(of), c[other].each(of))
	m.note("over %s", other)
	c.validate(&m, other)
	return m
}

// ratioOf is the ratio of both sides' values, repetition by repetition.
func ratioOf(measure string, ours, theirs []float64) Measure {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = ratio(ours[i], theirs[i])
	}
	m := newMeasure(measure, "ratio", ratios)
	m.between(median(ours), median(theirs))
	return m
}

// validate marks a measure whose other side was too slow to be compared with.
func (c comparison) validate(m *Measure, other string) {
	expected, raw := c[other].side.expected, c[rawName]
	if expected == 0 || raw == nil {
		return
	}
	scale := median(raw.rates()) / rawExpected
	if got, want := median(c[other].rates()), soundShare*expected*scale; got < want {
		m.invalid("invalid: %s did %.0f/s, less than %.0f/s, which is %g × %.0f rescaled by the raw statement (%.2f)",
			other, got, want, soundShare, expected, scale)
	}
}
