package main

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/bench/load"
	"github.com/holdfast/holdfast/internal/lanes"
	"github.com/holdfast/holdfast/internal/sleep"
)

const (
	// trickleRate is how many calls per second the normal lane receives, over
	// trickleConns connections.
	trickleRate  = 100
	trickleConns = 64
	waitSeconds  = 20
)

// peak is how many requests per second are decided with that many clients. It
// returns when the backlog is decided.
func (b *bench) peak(ctx context.Context, f *deployment, clients int, long time.Duration) (float64, error) {
	rate, _, err := f.decidedWhile(ctx, long, func(ctx context.Context, ready chan<- struct{}) (*load.Result, error) {
		target := f.target()
		target.Ready = func() { close(ready) }
		return load.Closed(ctx, target, clients, long, toHot)
	})
	return rate, err
}

// capacity searches for the number of clients with the highest rate of decided
// requests.
func (b *bench) capacity(ctx context.Context, f *deployment) (clients int, most float64, err error) {
	tried := []int{httpClients, 2 * httpClients, 4 * httpClients}
	if b.cold {
		tried = tried[:1]
	}
	for _, n := range tried {
		rate, err := b.peak(ctx, f, n, b.long)
		if err != nil {
			return 0, 0, err
		}
		b.progress("%d clients: %.0f/s decided", n, rate)
		if rate > most {
			clients, most = n, rate
		}
	}
	// A run that is too short to see a decision still needs a rate to send at.
	return max(clients, httpClients), max(most, 100), nil
}

// decidedWhile is how many requests for the hot variant are decided per second
// while the load lasts, without its first quarter, in which the queue fills.
// send closes ready when the load begins.
func (f *deployment) decidedWhile(outer context.Context, long time.Duration, send func(ctx context.Context, ready chan<- struct{}) (*load.Result, error)) (rate float64, r *load.Result, err error) {
	ready := make(chan struct{})
	g, ctx := errgroup.WithContext(outer)
	g.Go(func() (err error) {
		r, err = send(ctx, ready)
		return err
	})
	g.Go(func() error {
		if err := begun(ctx, ready); err != nil {
			return err
		}
		if err := sleep.For(ctx, long/4); err != nil {
			return err
		}
		first, err := reservedOf(ctx, f.db, f.tenant)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := sleep.For(ctx, long-long/4); err != nil {
			return err
		}
		last, err := reservedOf(ctx, f.db, f.tenant)
		rate = float64(last-first) / time.Since(began).Seconds()
		return err
	})
	if err := g.Wait(); err != nil {
		return 0, nil, err
	}
	return rate, r, f.checkRows(outer, sample{})
}

// begun waits until ready is closed.
func begun(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// trickle sends a few calls per second to the normal lane. Each waits for its
// outcome, and its latency counts from when it was due.
func (f *deployment) trickle(ctx context.Context, long time.Duration) (*load.Result, error) {
	target := f.target()
	target.Wait = waitSeconds
	r, err := load.Open(ctx, target, trickleRate, trickleConns, long, toNormal)
	if err == nil && (r.Decided < r.Accepted || r.Accepted == 0) {
		err = errors.New("requests of the normal lane were not decided in time")
	}
	return r, err
}

// cappedShare is the share of the machine's capacity that the hot lane may
// decide while the normal lane is measured. Without a cap the hot lane drains
// more than the API and the load can send on the same cores, and the figure
// would be that of a machine without a free core.
const cappedShare = 0.1

// isolation compares the normal lane's p99 with and without a flood of twice
// what the hot lane drains, which a rate cap limits. It also measures the same
// without a cap, where a flood of twice the capacity takes all cores.
func (b *bench) isolation(ctx context.Context) ([]Measure, error) {
	f, err := b.newDeployment(ctx)
	if err != nil {
		return nil, err
	}
	defer f.close()
	_, capacity, err := b.capacity(ctx, f)
	if err != nil {
		return nil, err
	}
	drained := max(math.Round(capacity*cappedShare/100)*100, 100)
	capped, saturated := watched{name: "isolation_p99", most: drained}, watched{name: "isolation_p99_saturated", most: capacity}
	for rep := b.first(); rep <= b.reps; rep++ {
		if err := b.checkpoint(ctx); err != nil {
			return nil, err
		}
		for _, w := range []*watched{&capped, &saturated} {
			if err := b.withFlood(ctx, f, w, w == &capped, rep > 0); err != nil {
				return nil, err
			}
		}
	}
	return []Measure{capped.measure("rate cap"), saturated.measure("capacity")}, nil
}

// watched is the normal lane during a flood of twice the most that the hot lane
// drains.
type watched struct {
	name                   string
	most                   float64
	alone, flooded         []float64
	offered, refused, lost []float64
}

// withFlood measures the normal lane alone and during a flood, and records the
// repetition.
func (b *bench) withFlood(ctx context.Context, f *deployment, w *watched, capped, counted bool) error {
	long := 2 * b.long // for enough calls to have a p99
	if capped {
		if err := f.capHot(ctx, int32(w.most)); err != nil {
			return err
		}
	}
	alone, err := f.trickle(ctx, long)
	if err != nil {
		return err
	}
	concurrent, flood, err := b.trickleDuringFlood(ctx, f, 2*w.most, long)
	if err != nil {
		return err
	}
	without, with := milliseconds(alone.Quantile(0.99)), milliseconds(concurrent.Quantile(0.99))
	b.progress("p99 %.1f ms alone, %.1f ms during a flood: %d accepted, %d refused, %d not sent", without, with, flood.Accepted, flood.Refused, flood.Missed)
	if counted {
		seconds := flood.Elapsed.Seconds()
		w.alone, w.flooded = append(w.alone, without), append(w.flooded, with)
		w.offered = append(w.offered, float64(flood.Accepted+flood.Refused)/seconds)
		w.refused, w.lost = append(w.refused, float64(flood.Refused)/seconds), append(w.lost, float64(concurrent.Refused+concurrent.Missed))
	}
	return nil
}

// measure is the measure of the repetitions; bound names what limits the hot
// lane.
func (w *watched) measure(bound string) Measure {
	m := ratioOf(w.name, w.flooded, w.alone)
	m.note("ours and other in ms; %s %.0f/s, flood %.0f/s sent (%.0f/s refused)", bound, w.most, median(w.offered), median(w.refused))
	if n := slices.Max(w.lost); n > 0 {
		m.note("up to %.0f calls of the normal lane were refused or not sent", n)
	}
	return m
}

// capHot caps the hot lane at the given requests per second; 0 removes the cap.
func (f *deployment) capHot(ctx context.Context, most int32) error {
	return lanes.Control(ctx, f.db, lanes.Hot, lanes.Patch{RateCap: &most}, audit.Origin{Actor: audit.Job("bench")})
}

// trickleDuringFlood starts the trickle after a quarter of the flood's time. It
// returns when all accepted requests are decided.
func (b *bench) trickleDuringFlood(outer context.Context, f *deployment, rate float64, long time.Duration) (trickle, flood *load.Result, err error) {
	ready := make(chan struct{})
	g, ctx := errgroup.WithContext(outer)
	g.Go(func() (err error) {
		flood, err = b.flood(ctx, f, rate, long+long/4, ready)
		return err
	})
	g.Go(func() (err error) {
		if err := begun(ctx, ready); err != nil {
			return err
		}
		if err := sleep.For(ctx, long/4); err != nil {
			return err
		}
		trickle, err = f.trickle(ctx, long)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	if err := f.capHot(outer, 0); err != nil { // so that what waits is decided
		return nil, nil, err
	}
	return trickle, flood, f.checkRows(outer, sample{})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// overload offers three times the capacity and counts what is decided.
func (b *bench) overload(ctx context.Context) ([]Measure, error) {
	return b.withDeployment(ctx, func(f *deployment) ([]Measure, error) { return b.overloadOf(ctx, f) })
}

func (b *bench) overloadOf(ctx context.Context, f *deployment) ([]Measure, error) {
	clients, _, err := b.capacity(ctx, f)
	if err != nil {
		return nil, err
	}
	long := 2 * b.long // the queue fills first
	var peaks, floods, sent, refused, missed []float64
	for rep := b.first(); rep <= b.reps; rep++ {
		if err := b.checkpoint(ctx); err != nil {
			return nil, err
		}
		peak, err := b.peak(ctx, f, clients, long)
		if err != nil {
			return nil, err
		}
		rate, r, err := f.decidedWhile(ctx, long, func(ctx context.Context, ready chan<- struct{}) (*load.Result, error) {
			return b.flood(ctx, f, 3*max(peak, 100), long, ready)
		})
		if err != nil {
			return nil, err
		}
		b.progress("decided %.0f/s at the peak, %.0f/s at three times as many calls: %d accepted, %d refused, %d not sent",
			peak, rate, r.Accepted, r.Refused, r.Missed)
		if rep > 0 && peak > 0 {
			peaks, floods = append(peaks, peak), append(floods, rate)
			sent = append(sent, float64(r.Accepted+r.Refused)/r.Elapsed.Seconds())
			refused = append(refused, float64(r.Refused)/r.Elapsed.Seconds())
			missed = append(missed, float64(r.Missed)/long.Seconds())
		}
	}
	m := ratioOf("overload_goodput", floods, peaks)
	m.note("%.0f/s sent, %.0f/s of them refused, %.0f/s more found all %d connections busy; peak with %d clients",
		median(sent), median(refused), median(missed), b.conns, clients)
	m.noteMissedPeak()
	return []Measure{m}, nil
}

// noteMissedPeak notes that more was decided than at the peak, so that the peak
// was not the capacity.
func (m *Measure) noteMissedPeak() {
	if m.Value > 1 {
		m.note("above 1: the peak was missed, so this is not a share of the capacity")
	}
}
