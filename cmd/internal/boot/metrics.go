package boot

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// metricsServer serves /metrics on METRICS_ADDRESS, away from the public port. A program has one, whichever of its parts
// asks for it first.
type metricsServer struct {
	mu       sync.Mutex
	listener net.Listener // nil until it listens
	serving  bool
}

// publicMetrics is what serves /metrics on PORT: nothing if METRICS_ADDRESS is set.
func (p *Program) publicMetrics() http.Handler {
	if p.Config.MetricsAddress != "" {
		return nil
	}
	return p.Metrics
}

// listenMetrics takes METRICS_ADDRESS, if it is set and not taken by this program yet.
func (p *Program) listenMetrics(ctx context.Context) error {
	p.metrics.mu.Lock()
	defer p.metrics.mu.Unlock()
	if p.Config.MetricsAddress == "" || p.metrics.listener != nil {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.Config.MetricsAddress)
	if err != nil {
		return fmt.Errorf("listen on METRICS_ADDRESS: %w", err)
	}
	p.metrics.listener = l
	return nil
}

// metricsStop is how long a reader of the metrics may take to be answered once the program stops.
const metricsStop = time.Second

// serveMetrics serves until ctx ends, unless another part of the program does.
func (p *Program) serveMetrics(ctx context.Context) error {
	p.metrics.mu.Lock()
	l, mine := p.metrics.listener, !p.metrics.serving
	p.metrics.serving = true
	p.metrics.mu.Unlock()
	if l == nil || !mine {
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", p.Metrics)
	return serve(ctx, newServer(bodiless(mux), p.Log), l, metricsStop, func() {})
}

// closeMetrics gives METRICS_ADDRESS back, served or not.
func (p *Program) closeMetrics() {
	p.metrics.mu.Lock()
	defer p.metrics.mu.Unlock()
	if p.metrics.listener != nil {
		_ = p.metrics.listener.Close()
	}
}
