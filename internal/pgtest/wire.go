package pgtest

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Wire is a TCP proxy in front of Postgres that breaks connections on purpose.
// In its zero state it passes everything on.
type Wire struct {
	// URL is the database's address through the proxy.
	URL string

	t                testing.TB
	listener         net.Listener
	network, address string
	open             sync.WaitGroup

	mu     sync.Mutex
	pairs  map[*pair]struct{}
	sent   int           // pieces that callers sent
	cutAt  int           // the number of the piece that breaks its connection; 0 for none
	loseAt int           // the number of the piece whose answer breaks its connection; 0 for none
	ended  bool          // set when the test ends
	silent bool          // everything is dropped, for good
	mark   []byte        // makes a connection silent once its caller has sent it
	left   int           // how many more times that happens
	hit    chan struct{} // closed when it first happens
}

// pair is one connection through the proxy.
type pair struct {
	caller, server net.Conn
	silent, losing bool // guarded by the wire's mutex
}

func (p *pair) close() {
	_ = p.caller.Close()
	_ = p.server.Close()
}

// NewWire starts a proxy for the database with that URL. It is closed when the
// test ends.
func NewWire(t testing.TB, databaseURL string) *Wire {
	t.Helper()
	config, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{t: t, pairs: make(map[*pair]struct{}), hit: make(chan struct{})}
	w.network, w.address = pgconn.NetworkAddress(config.Host, config.Port)
	if w.listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(config.User, config.Password), Path: "/" + config.Database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(w.listener.Addr().(*net.TCPAddr).Port)), RawQuery: "sslmode=disable",
	}
	w.URL = u.String()
	w.open.Go(w.serve)
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.end()
		w.CutAll()
		w.open.Wait()
	})
	return w
}

// end closes new connections as soon as they are made.
func (w *Wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// CutAt breaks the connection that sends the nth piece from now on, before the
// piece is passed on.
func (w *Wire) CutAt(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent, w.cutAt, w.loseAt = 0, n, 0
}

// LoseAt breaks the connection that sends the nth piece from now on, when the
// server answers it: the piece is passed on, the answer is not.
func (w *Wire) LoseAt(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent, w.cutAt, w.loseAt = 0, 0, n
}

// Sent returns how many pieces callers have sent since the last CutAt or
// LoseAt. A piece is what one read returns.
func (w *Wire) Sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// Silence drops everything in both directions, on present and new connections,
// until Speak. Connections stay open. A connection that became silent stays
// silent after Speak.
func (w *Wire) Silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = true
	for p := range w.pairs {
		p.silent = true
	}
}

// Speak lets new connections through again.
func (w *Wire) Speak() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.silent = false
}

// SilenceAfter makes a connection silent after its caller has sent the mark the
// given number of times. The mark is passed on. The channel is closed when that
// happens for the first time.
func (w *Wire) SilenceAfter(mark string, times int) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark, w.left, w.hit = []byte(mark), times, make(chan struct{})
	return w.hit
}

// CutAll breaks all present connections.
func (w *Wire) CutAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.pairs {
		p.close()
	}
}

func (w *Wire) serve() {
	for {
		caller, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := (&net.Dialer{}).DialContext(context.Background(), w.network, w.address)
		if err != nil {
			_ = caller.Close()
			continue
		}
		p := &pair{caller: caller, server: server}
		w.mu.Lock()
		p.silent = w.silent
		w.pairs[p] = struct{}{}
		if w.ended {
			p.close()
		}
		w.mu.Unlock()
		w.open.Go(func() { w.carry(p, caller, server, w.forth) })
		w.open.Go(func() { w.carry(p, server, caller, w.back) })
	}
}

// carry passes on what one side sends, as decide decides, until either
// side is closed.
func (w *Wire) carry(p *pair, from, to net.Conn, decide func(*pair, []byte) (pass, cut bool)) {
	defer func() {
		p.close()
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.pairs, p)
	}()
	piece := make([]byte, 1<<16)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		pass, cut := decide(p, piece[:n])
		if cut {
			return
		}
		if pass {
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
	}
}

func (w *Wire) forth(p *pair, piece []byte) (pass, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent++; w.sent == w.cutAt {
		return false, true
	}
	p.losing = p.losing || w.sent == w.loseAt
	pass = !p.silent
	if pass && w.left > 0 && bytes.Contains(piece, w.mark) {
		w.left--
		p.silent = true
		select {
		case <-w.hit:
		default:
			close(w.hit)
		}
	}
	return pass, false
}

func (w *Wire) back(p *pair, _ []byte) (pass, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !p.silent && !p.losing, p.losing
}
