package stage

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// pair is one connection through a route.
type pair struct {
	route      *Route
	client     net.Conn
	busy       atomic.Bool // whether the server is in a transaction
	discarding atomic.Bool // whether the server's messages are dropped
	ends       atomic.Bool // whether the connection breaks at the server's next message

	mu     sync.Mutex
	server net.Conn
	ended  bool
	gone   chan struct{} // closed when the connection has ended
}

func (p *pair) setServer(server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		_ = server.Close()
		return false
	}
	p.server = server
	return true
}

// close ends both sides.
func (p *pair) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	close(p.gone)
	_ = p.client.Close()
	if p.server != nil {
		_ = p.server.Close()
	}
}

// reset ends both sides with RST.
func (p *pair) reset() {
	p.mu.Lock()
	linger(p.client)
	if p.server != nil {
		linger(p.server)
	}
	p.mu.Unlock()
	p.close()
}

// linger makes closing a connection send RST and drop undelivered data.
func linger(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it may be closed already
	}
}

// pass waits until the route delivers, and reports whether the connection is
// still open.
func (p *pair) pass() bool {
	if delay := time.Duration(p.route.delay.Load()); delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.gone:
			return false
		}
	}
	for {
		p.route.mu.Lock()
		silent := p.route.silent
		p.route.mu.Unlock()
		if silent == nil {
			return true
		}
		select {
		case <-silent:
		case <-p.gone:
			return false
		}
	}
}

const pieceSize = 64 << 10

// forth delivers what the client sends, and cuts COMMITs. The end of one side
// reaches the other as data does: not while the route is silent.
func (p *pair) forth() {
	var f frontend
	piece := make([]byte, pieceSize)
	for {
		n, err := p.client.Read(piece)
		if !p.pass() || p.ends.Load() { // back ends the connection
			return
		}
		if err != nil {
			p.close()
			return
		}
		messages, err := f.feed(piece[:n], func() bool { return !p.busy.Load() })
		if err != nil || !p.send(messages) {
			p.close()
			return
		}
	}
}

// send delivers the messages to the server, up to a COMMIT that is cut. It
// reports whether the connection continues.
func (p *pair) send(messages []message) bool {
	var out []byte
	var cut Mode
	for _, m := range messages {
		if m.cancel && p.route.dropsCancels() {
			return false
		}
		if m.commit && cut == 0 {
			cut = p.route.take()
		}
		if cut == Before {
			break
		}
		out = append(out, m.raw...)
	}
	switch cut {
	case Swallowed:
		p.discarding.Store(true)
	case Midway, Unheard:
		p.ends.Store(true)
		p.discarding.Store(true)
	default:
	}
	if _, err := p.server.Write(out); err != nil {
		return false
	}
	switch cut {
	case Before:
		p.reset()
		return false
	case Midway:
		linger(p.client)
		_ = p.client.Close()
		if tcp, ok := p.server.(*net.TCPConn); ok {
			_ = tcp.CloseWrite() // the server may notice that its client has ended; back ends the rest
		}
	default:
	}
	return true
}

// back delivers what the server sends, until a cut ends that.
func (p *pair) back() {
	var b backend
	piece := make([]byte, pieceSize)
	for {
		n, err := p.server.Read(piece)
		if !p.pass() {
			return
		}
		if err != nil {
			p.close()
			return
		}
		b.feed(piece[:n], func(status byte) { p.busy.Store(status != 'I') })
		switch {
		case p.ends.Load():
			p.reset()
			return
		case p.discarding.Load():
			continue
		}
		if _, err := p.client.Write(piece[:n]); err != nil {
			p.close()
			return
		}
	}
}
