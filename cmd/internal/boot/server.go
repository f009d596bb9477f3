package boot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast/holdfast/internal/httpapi"
	"github.com/holdfast/holdfast/internal/requestrows"
)

const (
	headerTimeout = 5 * time.Second
	readTimeout   = 5 * time.Second // for a body that no handler waits for
	idleTimeout   = 2 * time.Minute // longer than a load balancer keeps a connection, so that the load balancer closes it
	headerMax     = 16 << 10        // bytes; the longest path and the headers we read take under 4,000
)

// listen listens on a port, on all interfaces if host is empty. Port 0 is any
// free port.
func listen(ctx context.Context, host string, port int) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d is taken by another program: choose another one (PORT or --port; 0 for any)", port)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("port %d may not be opened by this user: choose one above 1023", port)
	case err != nil:
		return nil, fmt.Errorf("listen on port %d: %w", port, err)
	}
	return l, nil
}

// newServer bounds what a caller can make a connection cost. It sets no
// WriteTimeout: a handler whose calls take longer, because they wait for a
// request to finish or receive a file, sets its own deadlines.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    headerMax,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// The server's own answer to OPTIONS * waits for a body.
		DisableGeneralOptionsHandler: true,
	}
}

// serve answers on l until ctx ends. Then it stops accepting, lets calls in
// flight be answered within the given time, and closes what is left. beforeStop
// runs first.
//
// The error reports calls that were not answered. A connection whose caller
// sends no complete request, or does not read the answer, does not count as a
// call.
func serve(ctx context.Context, server *http.Server, l net.Listener, within time.Duration, beforeStop func()) error {
	var calls atomic.Int64
	handler := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		defer calls.Add(-1)
		handler.ServeHTTP(w, r)
	})
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	beforeStop()
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	err := server.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		unanswered := calls.Load()
		err = server.Close()
		if unanswered > 0 {
			err = errors.Join(fmt.Errorf("%d calls were not answered within %s of the stop", unanswered, within), err)
		}
	}
	if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// metricsServer serves /metrics on METRICS_ADDRESS, separate from the public
// port. A program has one, started by the first of its parts that needs it.
type metricsServer struct {
	mu       sync.Mutex
	listener net.Listener // nil until it listens
	serving  bool
}

// publicMetrics serves /metrics on PORT. It is nil if METRICS_ADDRESS is set.
func (p *Program) publicMetrics() http.Handler {
	if p.Config.MetricsAddress != "" {
		return nil
	}
	return p.Metrics
}

// listenMetrics listens on METRICS_ADDRESS if it is set and this program does
// not listen on it yet.
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

// metricsStop is how long a request for the metrics may take once the program
// stops.
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
	return serve(ctx, newServer(httpapi.Bodiless(ctx, mux), p.Log), l, metricsStop, func() {})
}

// closeMetrics closes the listener on METRICS_ADDRESS, whether it served or
// not.
func (p *Program) closeMetrics() {
	p.metrics.mu.Lock()
	defer p.metrics.mu.Unlock()
	if p.metrics.listener != nil {
		_ = p.metrics.listener.Close()
	}
}

// readyTimeout is how long the database may take to answer a readiness check.
const readyTimeout = 2 * time.Second

// healthHandler answers whether the process is alive and whether it reaches the
// database, and serves its metrics.
func (w *Worker) healthHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(rw http.ResponseWriter, _ *http.Request) {
		for _, c := range w.cells {
			if lane := c.client.StalledLane(); lane != "" {
				writeText(rw, http.StatusServiceUnavailable, c.program.named("no tick of the "+lane+" lane has ended for a minute\n"))
				return
			}
		}
		writeText(rw, http.StatusOK, "ok\n")
	})
	ready := func(rw http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		writeHealth(rw, w.cellsReady(ctx))
	}
	mux.HandleFunc("GET /readyz", ready)
	mux.HandleFunc("GET /health", ready) // Cloud Run reserves some paths that end in z
	if metrics := w.program.publicMetrics(); metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	return mux
}

// cellsReady returns what is wrong with each cell; "" is nothing.
func (w *Worker) cellsReady(ctx context.Context) []string {
	return eachCell(w.cells, func(c *workerCell) string {
		err := requestrows.CheckSequences(ctx, c.db)
		if err == nil {
			return ""
		}
		c.program.Log.WarnContext(ctx, "not ready: the database does not answer, or a sequence is behind", "error", err)
		return c.program.named("the database does not answer, or a sequence is behind its rows\n")
	})
}

func writeText(rw http.ResponseWriter, status int, text string) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, text) // the caller may be gone
}

// healthStop is how long health checks in flight may take to be answered.
const healthStop = time.Second

func (w *Worker) serveHealth(ctx context.Context) error {
	return serve(ctx, newServer(httpapi.Bodiless(ctx, w.healthHandler()), w.program.Log), w.health, healthStop, func() {})
}
