package httpapi

import (
	"cmp"
	"errors"
	"io"
	"math"
	"net/http"
	"sync"
	"time"
)

// Limits bound how long a caller can occupy a connection. A field that is zero has its default.
type Limits struct {
	// BodyTime is how long a body may take to arrive, counted while the service reads it. Default 10 s.
	BodyTime time.Duration
	// An import's body may take longer, but each UploadWindow of reading must bring at least UploadLeast bytes, or the
	// end. Defaults 10 s and 10 KiB, which is a rate of 1 KiB/s.
	UploadWindow time.Duration
	UploadLeast  int64
	// AnswerTime is how long the caller may take to accept each piece of an answer, which is one Write. Default 30 s.
	AnswerTime time.Duration
	// Linger is how long the connection is still read after an answer that came before the end of the body, so that a
	// client that is sending receives the answer and not a reset (RFC 9112, section 9.6). Default 1 s.
	Linger time.Duration
	// StopTime is how long a body may still take once the program stops, and how long the caller may then take to accept
	// each piece of an answer. Default 2 s.
	StopTime time.Duration
}

func (l Limits) withDefaults() Limits {
	l.BodyTime = cmp.Or(l.BodyTime, 10*time.Second)
	l.UploadWindow = cmp.Or(l.UploadWindow, 10*time.Second)
	l.UploadLeast = cmp.Or(l.UploadLeast, 10<<10)
	l.AnswerTime = cmp.Or(l.AnswerTime, 30*time.Second)
	l.Linger = cmp.Or(l.Linger, time.Second)
	l.StopTime = cmp.Or(l.StopTime, 2*time.Second)
	return l
}

// errStopping reports a body that was cut off because the program stops.
var errStopping = errors.New("the program stops")

// connection is the response writer of one call. It sets the deadlines of the network connection: for the body while it
// is read, and for each piece of the answer. While the service works on the call there is no deadline, so that a long
// poll is not cut.
//
// An answer that begins before the body has been read to its end closes the connection. The server would otherwise wait
// for the body before it sends the answer.
type connection struct {
	http.ResponseWriter
	control *http.ResponseController
	limits  *Limits
	body    *incoming   // nil for a call without a body
	began   bool        // the answer has begun
	release func() bool // takes back the call of stop
	allowed time.Time   // when the deadline of a write was set

	mu      sync.Mutex
	reading bool
	stopBy  time.Time // zero until the program stops
}

// connect takes over the connection of a call until its end. The request it returns has the bounded body.
func (s *service) connect(w http.ResponseWriter, r *http.Request) (*connection, *http.Request) {
	limits := &s.limits
	c := &connection{ResponseWriter: w, control: http.NewResponseController(w), limits: limits}
	if r.Body == nil || r.ContentLength == 0 {
		// The server's ReadTimeout has served its purpose, and would end a call that takes longer.
		_ = c.control.SetReadDeadline(time.Time{})
	} else {
		bounded := *r
		c.body = &incoming{
			Reader: r.Body, c: c, left: limits.BodyTime, window: limits.BodyTime, least: math.MaxInt64,
			isOffered: r.Header.Get("Expect") != "", length: r.ContentLength,
		}
		bounded.Body = c.body
		r = &bounded
	}
	c.release = s.onStop(c.stop)
	return c, r
}

// end finishes the call. The server sends the rest of the answer after it.
func (c *connection) end() {
	c.release()
	c.begin()
}

// Unwrap gives http.ResponseController the server's own writer.
func (c *connection) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader begins the answer, unless it is an informational one.
func (c *connection) WriteHeader(status int) {
	if status >= http.StatusOK {
		c.begin()
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write sends a piece of the answer.
func (c *connection) Write(p []byte) (int, error) {
	c.begin()
	if time.Since(c.allowed) > renewAfter {
		c.allowWrite()
	}
	return c.ResponseWriter.Write(p)
}

// begin prepares the connection for the answer.
func (c *connection) begin() {
	if c.began {
		return
	}
	c.began = true
	c.allowWrite()
	if c.body != nil && !c.body.skip() {
		c.Header().Set("Connection", "close")
		_ = c.control.SetReadDeadline(time.Now().Add(c.limits.Linger))
	}
}

// renewAfter is how old the deadline of a write may be when the next one begins: most answers are one piece.
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

// endRead follows the read. At the end of the body the server begins to read in order to notice a caller that goes
// away, and a deadline would look like that.
func (c *connection) endRead(isEnd bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if isEnd {
		_ = c.control.SetReadDeadline(time.Time{})
	}
}

// stop leaves the network little more time, because the program stops.
func (c *connection) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopBy = time.Now().Add(c.limits.StopTime)
	if c.reading {
		_ = c.control.SetReadDeadline(c.stopBy)
	}
	_ = c.control.SetWriteDeadline(c.stopBy) // a later piece of the answer sets it again
}

func (c *connection) isStopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.stopBy.IsZero() && !time.Now().Before(c.stopBy)
}

// incoming is the body of a call. Only the time that is spent reading it counts.
type incoming struct {
	io.Reader
	c *connection

	left   time.Duration // until the window's bytes must be there
	window time.Duration
	least  int64     // bytes for each window
	got    int64     // bytes in this window
	until  time.Time // for the whole body, zero for no such limit

	isOffered bool  // the caller sends it only if it is asked to (Expect: 100-continue)
	length    int64 // as declared, -1 if not
	ended     bool
	failed    bool
}

// upload lets the body take longer, at the least rate of an upload and no longer than the given time.
func (b *incoming) upload(within time.Duration) {
	limits := b.c.limits
	b.left, b.window, b.least = limits.UploadWindow, limits.UploadWindow, limits.UploadLeast
	b.until = time.Now().Add(within)
}

// Read reads on. A body that is too slow is os.ErrDeadlineExceeded, or errStopping once the program stops.
func (b *incoming) Read(p []byte) (int, error) {
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

// Close does nothing: the server closes the body after the answer.
func (b *incoming) Close() error { return nil }

// skippedMax is the largest body that is read for nothing to keep the connection.
const skippedMax = bodyMax

// skip reports whether the body has been read to its end. A small one that no handler wanted is read here, as far as it has
// arrived with the head.
func (b *incoming) skip() bool {
	if b.ended || b.failed || b.isOffered || b.length < 0 || b.length > skippedMax {
		return b.ended
	}
	b.left = 0
	_, err := io.Copy(io.Discard, b)
	return err == nil && b.ended
}
