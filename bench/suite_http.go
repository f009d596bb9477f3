package main

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/bench/load"
)

const (
	httpName       = "holdfast over HTTP"
	httpSync       = "synchronous, four statements"
	httpPipelined  = "synchronous, pipelined"
	httpMicroBatch = "synchronous, micro-batcher"
	httpClients    = 64
)

// http is add-to-cart over HTTP on one hot variant, from 64 clients on the same
// cores.
func (b *bench) http(ctx context.Context) ([]Measure, error) {
	return b.withDeployment(ctx, func(f *deployment) ([]Measure, error) { return b.httpOf(ctx, f) })
}

func (b *bench) httpOf(ctx context.Context, f *deployment) ([]Measure, error) {
	g, err := b.newEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	defer g.close()
	contenders := []*contender{f.contender()}
	var services []*synchronous
	defer func() {
		for _, service := range services {
			service.close()
		}
	}()
	for _, s := range []struct {
		name, what, form string
		expected         float64
	}{
		{httpSync, "HTTP: a transaction per request, 64 clients", formTransaction, 1700},
		{httpPipelined, "HTTP: pipelined, 64 clients", formPipelined, 0},
		{httpMicroBatch, "HTTP: a micro-batcher, 64 clients", formMicroBatch, 0},
	} {
		service, err := b.newSynchronous(ctx, s.form)
		if err != nil {
			return nil, err
		}
		services = append(services, service)
		contenders = append(contenders, service.contender(s.name, s.what, s.expected))
	}
	c, err := b.compare(ctx, append(contenders, b.raw(g))...)
	if err != nil {
		return nil, err
	}
	for _, s := range contenders {
		b.plottedAs(c, s.name, s.what, s.name == httpName)
	}
	latency := c.overBy("http_accept_p99_vs_sync", httpName, httpSync, func(s sample) float64 { return float64(s.p99.Microseconds()) / 1000 })
	latency.note("ours and other in ms")
	return append([]Measure{
		c.over("http_hot_vs_sync", httpName, httpSync),
		c.over("http_hot_vs_handwritten", httpName, httpPipelined),
		c.over("http_hot_vs_microbatch", httpName, httpMicroBatch),
		latency,
	}, f.memory("")...), nil
}

// memory is the programs' peak memory, in measures whose names have the prefix.
func (f *deployment) memory(prefix string) (measures []Measure) {
	for _, p := range []struct {
		name    string
		process *process
	}{{prefix + "rss_api_mb", f.api}, {prefix + "rss_worker_mb", f.worker}} {
		m := newMeasure(p.name, "MiB", []float64{p.process.peakMemory()})
		if m.Value == 0 {
			m = skipped(p.name, "the system does not tell")
		}
		measures = append(measures, m)
	}
	return measures
}

// contender counts accepted requests, until the last of them is decided.
func (f *deployment) contender() *contender {
	return &contender{
		name: httpName, what: "HTTP: Holdfast, accepted and decided, 64 clients",
		run: func(ctx context.Context, long time.Duration) (s sample, err error) {
			before, err := reservedOf(ctx, f.db, f.tenant)
			if err != nil {
				return s, err
			}
			began := time.Now()
			r, err := load.Closed(ctx, f.target(), httpClients, long, toHot)
			if err != nil {
				return s, err
			}
			if err := awaitReserved(ctx, f.db, f.tenant, before+r.Accepted); err != nil {
				return s, err
			}
			return sample{count: r.Accepted, elapsed: time.Since(began), p99: r.Quantile(0.99)}, nil
		},
		check: f.checkRows,
	}
}

// contender counts answered requests, which are decided.
func (s *synchronous) contender(name, what string, expected float64) *contender {
	return s.contenderOf(name, what, expected, httpClients, toHot)
}

func (s *synchronous) contenderOf(name, what string, expected float64, clients int, next func() load.Item) *contender {
	return &contender{
		name: name, what: what, expected: expected,
		run: func(ctx context.Context, long time.Duration) (sample, error) {
			r, err := load.Closed(ctx, s.target(), clients, long, next)
			if err != nil {
				return sample{}, err
			}
			if r.Accepted != r.Decided {
				return sample{}, fmt.Errorf("%d of %d calls were not decided", r.Accepted-r.Decided, r.Accepted)
			}
			return sample{count: r.Accepted, elapsed: r.Elapsed, p50: r.Quantile(0.5), p99: r.Quantile(0.99)}, nil
		},
		check: func(ctx context.Context, found sample) error {
			s.held += found.count
			return baselines.Check(ctx, s.db, s.held)
		},
	}
}
