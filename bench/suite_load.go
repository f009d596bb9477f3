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
	"github.com/holdfast/holdfast/queues"
	"github.com/holdfast/holdfast/requests"
)

const (
	// trickleRate is how many calls a second the normal lane gets, over trickleConns connections.
	trickleRate  = 100
	trickleConns = 64
	waitSeconds  = 20
)

// peak is how many requests a second are decided with so many clients. The backlog is decided before it returns.
func (b *bench) peak(ctx context.Context, f *front, clients int, long time.Duration) (float64, error) {
	rate, _, err := f.decidedWhile(ctx, long, func(ctx context.Context, ready chan<- struct{}) (*load.Result, error) {
		target := f.target()
		target.Ready = func() { close(ready) }
		return load.Closed(ctx, target, clients, long, toHot)
	})
	return rate, err
}

// capacity looks for the number of clients at which most is decided.
func (b *bench) capacity(ctx context.Context, f *front) (clients int, most float64, err error) {
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
	// a run too short to see anything decided still has a rate to send at
	return max(clients, httpClients), max(most, 100), nil
}

// decidedWhile is how many requests for the hot variant are decided a second while the load lasts, without its first
// quarter, in which the queue fills. send closes ready when the load begins.
func (f *front) decidedWhile(outer context.Context, long time.Duration, send func(ctx context.Context, ready chan<- struct{}) (*load.Result, error)) (rate float64, r *load.Result, err error) {
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
		if err := wait(ctx, long/4); err != nil {
			return err
		}
		first, err := reservedOf(ctx, f.db, f.tenant)
		if err != nil {
			return err
		}
		began := time.Now()
		if err := wait(ctx, long-long/4); err != nil {
			return err
		}
		last, err := reservedOf(ctx, f.db, f.tenant)
		rate = float64(last-first) / time.Since(began).Seconds()
		return err
	})
	if err := g.Wait(); err != nil {
		return 0, nil, err
	}
	return rate, r, f.sound(outer, sample{})
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

// trickle sends a few calls a second to the normal lane, each waiting for its outcome, counted from when it was due.
func (f *front) trickle(ctx context.Context, long time.Duration) (*load.Result, error) {
	target := f.target()
	target.Wait = waitSeconds
	r, err := load.Open(ctx, target, trickleRate, trickleConns, long, toNormal)
	if err == nil && (r.Decided < r.Accepted || r.Accepted == 0) {
		err = errors.New("requests of the normal lane were not decided in time")
	}
	return r, err
}

// cappedShare is how much of the machine's capacity the hot lane may decide while the normal lane is watched: without a cap it
// drains more than the API and the load can send on the same cores, and the figure would be that of a machine without a
// free core.
const cappedShare = 0.1

// isolation compares the normal lane's p99 with and without a flood of twice what the hot lane drains, which a rate cap says.
// Beside it stands the same with no cap, where a flood of twice the capacity takes all the cores there are.
func (b *bench) isolation(ctx context.Context) ([]Measure, error) {
	f, err := b.newFront(ctx)
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
			if err := b.besides(ctx, f, w, w == &capped, rep > 0); err != nil {
				return nil, err
			}
		}
	}
	return []Measure{capped.measure("rate cap"), saturated.measure("capacity")}, nil
}

// watched is the normal lane beside a flood of twice the most that the hot lane drains.
type watched struct {
	name                   string
	most                   float64
	calm, flooded          []float64
	offered, refused, lost []float64
}

// besides measures the normal lane alone and beside a flood, and counts it.
func (b *bench) besides(ctx context.Context, f *front, w *watched, capped, counted bool) error {
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
	beside, flood, err := b.trickleBesideFlood(ctx, f, 2*w.most, long)
	if err != nil {
		return err
	}
	without, with := milliseconds(alone.Quantile(0.99)), milliseconds(beside.Quantile(0.99))
	b.progress("p99 %.1f ms alone, %.1f ms beside a flood: %d accepted, %d refused, %d not sent", without, with, flood.Accepted, flood.Refused, flood.Missed)
	if counted {
		seconds := flood.Elapsed.Seconds()
		w.calm, w.flooded = append(w.calm, without), append(w.flooded, with)
		w.offered = append(w.offered, float64(flood.Accepted+flood.Refused)/seconds)
		w.refused, w.lost = append(w.refused, float64(flood.Refused)/seconds), append(w.lost, float64(beside.Refused+beside.Missed))
	}
	return nil
}

// measure is what was counted; bound names what most is.
func (w *watched) measure(bound string) Measure {
	m := ratioOf(w.name, w.flooded, w.calm)
	m.note("ours and other in ms; %s %.0f/s, flood %.0f/s sent (%.0f/s refused)", bound, w.most, median(w.offered), median(w.refused))
	if n := slices.Max(w.lost); n > 0 {
		m.note("up to %.0f calls of the normal lane were refused or not sent", n)
	}
	return m
}

// capHot caps the hot lane at so many requests a second; 0 for no cap.
func (f *front) capHot(ctx context.Context, most int32) error {
	return queues.Control(ctx, f.db, requests.Hot, queues.LanePatch{RateCap: &most}, audit.Origin{Actor: audit.Job("bench")})
}

// trickleBesideFlood begins the trickle when the flood has lasted a quarter of the time. What was accepted is decided when
// it returns.
func (b *bench) trickleBesideFlood(outer context.Context, f *front, rate float64, long time.Duration) (trickle, flood *load.Result, err error) {
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
		if err := wait(ctx, long/4); err != nil {
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
	return trickle, flood, f.sound(outer, sample{})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// overload offers three times the capacity and counts what is decided all the same.
func (b *bench) overload(ctx context.Context) ([]Measure, error) {
	return b.withFront(ctx, func(f *front) ([]Measure, error) { return b.overloadOf(ctx, f) })
}

func (b *bench) overloadOf(ctx context.Context, f *front) ([]Measure, error) {
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

// noteMissedPeak notes that more was decided than at the peak, which is none then.
func (m *Measure) noteMissedPeak() {
	if m.Value > 1 {
		m.note("above 1: the peak was missed, so this is no share of the capacity")
	}
}
