package httpapi

import (
	"context"
	"io"
	"net/http"
	"time"
)

const (
	// lingerBytes is how much of a body is discarded after its response, in
	// bytes: twice the largest import.
	lingerBytes = 128 << 20
	// lingerMax is how many connections of a handler are read in this way at
	// the same time. The server closes any further one after 256 KiB.
	lingerMax = 100
)

// linger sends the response, and then reads and discards the rest of the body
// within Limits.Linger and Limits.BodyTime. Many clients write
// the whole body before they read. If the connection were closed while they
// write, they would receive a reset in place of the response: the server itself
// reads only 256 KiB.
//
// A client that waits for 100 Continue does not send the body. A read would
// also make the server send 100 Continue after the response.
func (c *connection) linger() {
	defer c.lingering.Add(-1)
	if c.lingering.Add(1) > lingerMax || c.body.expectsContinue && !c.body.began {
		return
	}
	if c.control.Flush() != nil {
		return
	}
	c.body.linger()
	_, _ = io.CopyN(io.Discard, c.body, lingerBytes) // the response is sent, whatever the body does
}

// linger allows the body a time without a byte, and a time in all.
func (b *incoming) linger() {
	limits := &b.c.limits
	b.left, b.window, b.least, b.got = limits.Linger, limits.Linger, 1, 0
	b.until = time.Now().Add(limits.BodyTime)
}

// Bodiless bounds the connections of a handler that reads no body, as [New]
// bounds those of the API, with the default Limits. When ctx ends, the program
// begins to stop.
func Bodiless(ctx context.Context, handler http.Handler) http.Handler {
	c := &connections{limits: Limits{}.withDefaults(), onStop: onEnd(ctx)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection, bounded := c.connect(w, r)
		defer connection.release()
		handler.ServeHTTP(connection, bounded)
		connection.end()
	})
}

// onEnd returns a function that calls f when ctx ends.
func onEnd(ctx context.Context) func(f func()) (release func() bool) {
	return func(f func()) func() bool { return context.AfterFunc(ctx, f) }
}
