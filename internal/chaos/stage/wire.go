package stage

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Wire is the proxy. It is safe for concurrent use.
type Wire struct {
	ctx      context.Context //nolint:containedctx // of the connections, which outlive every call
	stop     context.CancelFunc
	upstream atomic.Pointer[string]
	open     sync.WaitGroup

	mu     sync.Mutex
	routes []*Route
}

// NewWire makes a proxy without routes. Close ends it.
func NewWire() *Wire {
	ctx, stop := context.WithCancel(context.Background())
	w := &Wire{ctx: ctx, stop: stop}
	w.SetUpstream("")
	return w
}

// SetUpstream names the host and port of Postgres, or the path of its socket,
// for connections from now on.
func (w *Wire) SetUpstream(address string) { w.upstream.Store(&address) }

// Close breaks every connection, and waits until they have ended.
func (w *Wire) Close() {
	w.stop()
	w.mu.Lock()
	routes := w.routes
	w.mu.Unlock()
	for _, r := range routes {
		_ = r.listener.Close()
		r.Reset()
	}
	w.open.Wait()
}

// Route is the connection path of one program to Postgres. It is safe for
// concurrent use.
type Route struct {
	wire     *Wire
	listener net.Listener
	delay    atomic.Int64 // the delay of each piece, in nanoseconds

	mu     sync.Mutex
	pairs  map[*pair]bool
	silent chan struct{} // nil: data is delivered; else closed when it is delivered again
	mode   Mode
	left   int // COMMITs still to be cut
	cuts   int // COMMITs that were cut
}

// Mode is how a COMMIT is cut.
type Mode int

// The ways to cut a COMMIT. Each breaks the connection, Swallowed only when the
// cut ends.
const (
	// Before does not deliver it.
	Before Mode = iota + 1
	// Midway delivers it, but no CancelRequest, and breaks the client's
	// connection at once.
	//
	// A driver that loses its connection sends a CancelRequest, which on a busy
	// server arrives before the COMMIT ends.
	Midway
	// Unheard delivers it. When the answer arrives, it breaks the client's
	// connection instead of delivering the answer.
	Unheard
	// Swallowed delivers it, but neither the answer nor a CancelRequest.
	Swallowed
)

// dialTimeout bounds the time to connect to Postgres.
const dialTimeout = 5 * time.Second

// NewRoute opens a path to Postgres.
func (w *Wire) NewRoute() (*Route, error) {
	l, err := (&net.ListenConfig{}).Listen(w.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a route: %w", err)
	}
	r := &Route{wire: w, listener: l, pairs: make(map[*pair]bool)}
	w.mu.Lock()
	w.routes = append(w.routes, r)
	w.mu.Unlock()
	w.open.Go(r.serve)
	return r, nil
}

// Address is the route's host and port.
func (r *Route) Address() string { return r.listener.Addr().String() }

// Cuts is how many COMMITs were cut.
func (r *Route) Cuts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cuts
}

// Reset breaks every connection of the route, with RST.
func (r *Route) Reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		p.reset()
	}
}

// Silence delivers nothing until end is called. Meanwhile connections are
// accepted. Everything that was sent is delivered afterwards.
func (r *Route) Silence() (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	silent := make(chan struct{})
	r.silent = silent
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.silent == silent {
			r.silent = nil
		}
		close(silent)
	}
}

// Slow delays every piece until end is called.
func (r *Route) Slow(by time.Duration) (end func()) {
	r.delay.Store(int64(by))
	return func() { r.delay.Store(0) }
}

// Cut cuts the next count COMMITs. end ends the cut, and breaks the connections
// whose answer was swallowed.
func (r *Route) Cut(mode Mode, count int) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode, r.left = mode, count
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mode, r.left = 0, 0
		for p := range r.pairs {
			if p.discarding.Load() {
				p.reset()
			}
		}
	}
}

// take returns the mode in which this COMMIT is cut, or 0 if it is not cut.
func (r *Route) take() Mode {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mode == 0 || r.left == 0 {
		return 0
	}
	r.left--
	r.cuts++
	return r.mode
}

// dropsCancels reports whether CancelRequests are not delivered.
func (r *Route) dropsCancels() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mode == Swallowed || r.mode == Midway
}

func (r *Route) serve() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wire.open.Go(func() { r.connect(client) })
	}
}

// connect serves one connection until it ends.
func (r *Route) connect(client net.Conn) {
	p := &pair{route: r, client: client, gone: make(chan struct{})}
	r.mu.Lock()
	r.pairs[p] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.pairs, p)
		r.mu.Unlock()
		p.close()
	}()
	if r.wire.ctx.Err() != nil || !p.pass() {
		return
	}
	network, address := "tcp", *r.wire.upstream.Load()
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	server, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(r.wire.ctx, network, address)
	if err != nil {
		p.reset() // as if no process listened on the port
		return
	}
	if !p.setServer(server) {
		return
	}
	var both sync.WaitGroup
	both.Go(p.forth)
	both.Go(p.back)
	both.Wait()
}
