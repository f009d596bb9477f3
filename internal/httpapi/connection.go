package httpapi

import (
	"cmp"
	"errors"
	"io"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Limits bound how long a caller can occupy a connection. A field that is zero
// has its default.
type Limits struct {
	// BodyTime is how long a body may take to arrive. Only time during which
	// the service reads counts. Default 10 s.
	BodyTime time.Duration
	// The body of an import may take longer. In each UploadWindow of reading at
	// least UploadMin bytes or the end must arrive. Defaults 10 s and 10 KiB,
	// which is a rate of 1 KiB/s.
	UploadWindow time.Duration
	UploadMin    int64
	// AnswerTime is how long the caller may take to accept each piece of a
	// response, which is one Write. Default 30 s.
	AnswerTime time.Duration
	// Linger is how long the service waits for more of a body after a response
	// that was sent before the body's end. It reads and discards what arrives,
	// within BodyTime in all, so that a client that is still sending receives
	// the response and not a reset (RFC 9112, section 9.6). Default 1 s.
	Linger time.Duration
	// StopTime replaces the other times when the program begins to stop: for a
	// body that is arriving, and for each piece of a response. Default 2 s.
	StopTime time.Duration
}

func (l Limits) withDefaults() Limits {
	l.BodyTime = cmp.Or(l.BodyTime, 10*time.Second)
	l.UploadWindow = cmp.Or(l.UploadWindow, 10*time.Second)
	l.UploadMin = cmp.Or(l.UploadMin, 10<<10)
	l.AnswerTime = cmp.Or(l.AnswerTime, 30*time.Second)
	l.Linger = cmp.Or(l.Linger, time.Second)
	l.StopTime = cmp.Or(l.StopTime, 2*time.Second)
	return l
}

// errStopping reports a body that was cut off because the program stops.
var errStopping = errors.New("the program stops")

// connection is the response writer of one request. It sets the deadlines of
// the network connection: for the body while it is read, and for each piece of
// the response. While the service works on the request there is no deadline, so
// that a long poll is not cut.
//
// A response that begins before the body was read to its end closes the
// connection. Otherwise the server would wait for the body before it sends the
// response.
type connection struct {
	http.ResponseWriter
	*connections
	control *http.ResponseController
	body    *incoming   // nil for a request without a body
	began   bool        // the response has begun
	release func() bool // unregisters stop
	allowed time.Time   // when the deadline of a write was set

	mu      sync.Mutex
	reading bool
	stopBy  time.Time // zero until the program stops
}

// connections bound the connections of one handler.
type connections struct {
	limits Limits
	// onStop calls f when the program begins to stop, unless release was called
	// before.
	onStop    func(f func()) (release func() bool)
	lingering atomic.Int64
}

// connect returns the connection of a request, and the request with a bounded
// body. The caller must call end after the response, and then release. A call
// that is aborted is only released.
func (s *connections) connect(w http.ResponseWriter, r *http.Request) (*connection, *http.Request) {
	limits := &s.limits
	c := &connection{ResponseWriter: w, control: http.NewResponseController(w), connections: s}
	if r.Body == nil || r.ContentLength == 0 {
		// The server's ReadTimeout is no longer needed, and would end a request
		// that takes longer.
		_ = c.control.SetReadDeadline(time.Time{})
	} else {
		bounded := *r
		c.body = &incoming{
			Reader: r.Body, c: c, left: limits.BodyTime, window: limits.BodyTime, least: math.MaxInt64,
			expectsContinue: r.Header.Get("Expect") != "", length: r.ContentLength,
		}
		bounded.Body = c.body
		r = &bounded
	}
	c.release = s.onStop(c.stop)
	return c, r
}

// end ends the request. If the body was not read to its end, end sends the rest
// of the response and then discards the rest of the body. Otherwise the server
// sends the rest of the response afterwards.
func (c *connection) end() {
	c.begin()
	if c.body != nil && !c.body.ended {
		c.linger()
	}
}

// Unwrap returns the server's writer, for http.ResponseController.
func (c *connection) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader begins the response, unless the status is informational.
func (c *connection) WriteHeader(status int) {
	if status >= http.StatusOK {
		c.begin()
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write sends a piece of the response.
func (c *connection) Write(p []byte) (int, error) {
	c.begin()
	if time.Since(c.allowed) > renewAfter {
		c.allowWrite()
	}
	return c.ResponseWriter.Write(p)
}

// begin prepares the connection for the response.
func (c *connection) begin() {
	if c.began {
		return
	}
	c.began = true
	c.allowWrite()
	if c.body != nil && !c.body.discard() {
		c.Header().Set("Connection", "close")
		_ = c.control.SetReadDeadline(time.Now().Add(c.limits.Linger))
	}
}

// renewAfter is how old the deadline of a write may be when the next write
// begins. Most responses are one piece and need one deadline.
const renewAfter = 100 * time.Millisecond

func (c *connection) allowWrite() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.allowed = time.Now()
	within := c.limits.AnswerTime
	if !c.stopBy.IsZero() {
		within = min(within, c.limits.StopTime)
	}
	_ = c.control.SetWriteDeadline(c.allowed.Add(within))
}

// allowRead sets the deadline of the read that follows.
func (c *connection) allowRead(by time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = true
	if !c.stopBy.IsZero() && c.stopBy.Before(by) {
		by = c.stopBy
	}
	_ = c.control.SetReadDeadline(by)
}

// endRead is called after the read. At the end of the body the server begins to
// read, to detect that the caller disconnects. A deadline would have the same
// effect as that, so endRead removes it.
func (c *connection) endRead(isEnd bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if isEnd {
		_ = c.control.SetReadDeadline(time.Time{})
	}
}

// stop shortens the deadlines to StopTime, because the program stops.
func (c *connection) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopBy = time.Now().Add(c.limits.StopTime)
	if c.reading {
		_ = c.control.SetReadDeadline(c.stopBy)
	}
	_ = c.control.SetWriteDeadline(c.stopBy) // a later piece of the response sets it again
}

func (c *connection) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.stopBy.IsZero() && !time.Now().Before(c.stopBy)
}

// incoming is the body of a request. Only the time that is spent reading it
// counts.
type incoming struct {
	io.Reader
	c *connection

	left   time.Duration // until the bytes of the window must have arrived
	window time.Duration
	least  int64     // bytes for each window
	got    int64     // bytes in this window
	until  time.Time // deadline of the whole body, zero for none

	expectsContinue bool  // the caller sends it only after 100 Continue
	length          int64 // as declared, -1 if not
	began           bool  // it was read, so that 100 Continue is sent
	ended           bool
	failed          bool
}

// upload allows the body the given time in total, at the least rate of an
// upload.
func (b *incoming) upload(within time.Duration) {
	limits := &b.c.limits
	b.left, b.window, b.least = limits.UploadWindow, limits.UploadWindow, limits.UploadMin
	b.until = time.Now().Add(within)
}

// Read reads the next bytes. If the body is too slow, the error is
// os.ErrDeadlineExceeded, or errStopping once the program stops.
func (b *incoming) Read(p []byte) (int, error) {
	b.began = true
	began := time.Now()
	by := began.Add(b.left)
	if !b.until.IsZero() && b.until.Before(by) {
		by = b.until
	}
	b.c.allowRead(by)
	n, err := b.Reader.Read(p)
	isEnd := err == io.EOF //nolint:errorlint // a reader ends with io.EOF itself; an error that wraps it is not the end
	b.c.endRead(isEnd)
	b.left -= time.Since(began)
	b.got += int64(n)
	if b.got >= b.least {
		b.left, b.got = b.window, 0
	}
	switch {
	case isEnd:
		b.ended = true
	case err != nil:
		b.failed = true
		if b.c.isStopped() {
			err = errors.Join(errStopping, err)
		}
	}
	return n, err
}

// Close does nothing. The server closes the body after the response.
func (b *incoming) Close() error { return nil }

// discardMax is the largest body that is read and discarded to keep the
// connection, in bytes.
const discardMax = bodyMax

// discard reports whether the body was read to its end. It reads the rest of a
// small body, as far as that has arrived already.
func (b *incoming) discard() bool {
	if b.ended || b.failed || b.expectsContinue || b.length < 0 || b.length > discardMax {
		return b.ended
	}
	b.left = 0
	_, err := io.Copy(io.Discard, b)
	return err == nil && b.ended
}
