package wire

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

// New makes a proxy without routes. Close ends it.
func New() *Wire {
	ctx, stop := context.WithCancel(context.Background())
	w := &Wire{ctx: ctx, stop: stop}
	w.SetUpstream("")
	return w
}

// SetUpstream names the host and port of Postgres, or the path of its socket, for connections from now on.
func (w *Wire) SetUpstream(address string) { w.upstream.Store(&address) }

// Close breaks every connection, and waits until they are gone.
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

// Route is the way of one program to Postgres. It is safe for concurrent use.
type Route struct {
	wire     *Wire
	listener net.Listener
	delay    atomic.Int64 // of each piece, in nanoseconds

	mu     sync.Mutex
	pairs  map[*pair]bool
	silent chan struct{} // nil: what is sent is delivered; else closed when it is again
	mode   Mode
	left   int // COMMITs still to be cut
	cuts   int // COMMITs that were cut
}

// Mode is how a COMMIT is cut.
type Mode int

// The ways to cut a COMMIT. Each breaks the connection, the last one only when the cut is ended.
const (
	// Before does not deliver it.
	Before Mode = iota + 1
	// Midway delivers it and breaks the client's connection at once.
	Midway
	// Unheard delivers it, and breaks the client's connection when the answer comes, which is not delivered.
	Unheard
	// Swallowed delivers it, not the answer, and no CancelRequest.
	Swallowed
)

// dialTimeout bounds how long a connection to Postgres may take.
const dialTimeout = 5 * time.Second

// NewRoute opens a way to Postgres.
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

// Silence delivers nothing until the function it returns is called. Connections are accepted meanwhile, and what is sent
// on any is delivered afterwards.
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

// Slow delays every piece that passes, until the function it returns is called.
func (r *Route) Slow(by time.Duration) (end func()) {
	r.delay.Store(int64(by))
	return func() { r.delay.Store(0) }
}

// Cut cuts the next count COMMITs. The function it returns ends that, and breaks the connections whose answer was
// swallowed.
func (r *Route) Cut(mode Mode, count int) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mode, r.left = mode, count
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mode, r.left = 0, 0
		for p := range r.pairs {
			if p.deaf.Load() {
				p.reset()
			}
		}
	}
}

// take is the way in which this COMMIT is cut; 0 if it is not.
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

// swallowing reports whether CancelRequests are not delivered.
func (r *Route) swallowing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mode == Swallowed
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

// connect carries one connection until it ends.
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
		p.reset() // as a port that nothing listens on
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
