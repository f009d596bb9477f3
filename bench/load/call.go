package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Target is where the calls go.
type Target struct {
	// Address is the server's host and port, Key the API key.
	Address, Key string
	// Wait is the seconds the caller prefers to wait for the outcome; 0 for
	// none.
	Wait int
	// AfterRefusal is how long a caller of a closed load waits after a 429 or a
	// 503.
	AfterRefusal time.Duration
	// Ready, if not nil, is called once every connection is open, before the
	// first call.
	Ready func()
}

// Item is a variant in a cart.
type Item struct{ CartID, VariantID string }

// Verb is what a call asks for.
type Verb uint8

// The verbs. An Add is for one unit.
const (
	Add Verb = iota
	Checkout
	Remove
	Set
)

// Call is one call on a cart.
type Call struct {
	Verb Verb
	Item
	// Quantity is how many units a Set asks for.
	Quantity int
}

// Answer is what a call was answered with.
type Answer struct {
	Status int
	// Body is valid until the next call on the connection.
	Body []byte
	// Took is from the first byte sent to the last one received.
	Took time.Duration
}

// Refused reports that the service had too much to do, so that the call can be
// sent again.
func (a Answer) Refused() bool {
	return a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable
}

// conn is one connection to the target.
type conn struct {
	net.Conn
	target Target
	in     *bufio.Reader
	out    []byte
	body   bytes.Buffer
}

func (t Target) dial(ctx context.Context) (*conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", t.Address, err)
	}
	return &conn{Conn: c, target: t, in: bufio.NewReaderSize(c, 4096)}, nil
}

// send makes the call and returns its answer.
func (c *conn) send(call Call) (a Answer, err error) {
	began := time.Now()
	c.out = c.target.appendCall(c.out[:0], call)
	if _, err := c.Write(c.out); err != nil {
		return a, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	c.body.Reset()
	if _, err := c.body.ReadFrom(response.Body); err != nil {
		return a, err
	}
	return Answer{Status: response.StatusCode, Body: c.body.Bytes(), Took: time.Since(began)}, nil
}

// appendCall appends the call in the form that HTTP/1.1 has. The ids need no
// escaping.
func (t Target) appendCall(b []byte, call Call) []byte {
	var before, variant, after string // of the body
	switch call.Verb {
	case Add:
		b = append(append(append(b, "POST /v1/carts/"...), call.CartID...), "/items"...)
		before, variant, after = `{"variant_id":"`, call.VariantID, `","quantity":1}`
	case Checkout:
		b = append(append(append(b, "POST /v1/carts/"...), call.CartID...), "/checkout"...)
	case Remove:
		b = append(append(b, "DELETE /v1/carts/"...), call.CartID...)
		b = append(append(b, "/items/"...), call.VariantID...)
	case Set:
		b = append(append(b, "PATCH /v1/carts/"...), call.CartID...)
		b = append(append(b, "/items/"...), call.VariantID...)
		before, after = `{"quantity":`, strconv.Itoa(call.Quantity)+`}`
	}
	b = append(b, " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nAuthorization: Bearer "...)
	b = append(b, t.Key...)
	if t.Wait > 0 && (call.Verb == Add || call.Verb == Set) {
		b = strconv.AppendInt(append(b, "\r\nPrefer: wait="...), int64(t.Wait), 10)
	}
	b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(before)+len(variant)+len(after)), 10)
	return append(append(append(append(b, "\r\n\r\n"...), before...), variant...), after...)
}
