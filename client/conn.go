package client

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Conn is one connection to one process of the API, for a load generator: it
// sends each call once, with as little work as possible. It has no timeouts but
// the deadlines of the connection. One goroutine uses it.
type Conn struct {
	net.Conn
	head []byte // the part of a request that all calls share
	in   *bufio.Reader
	out  []byte
	body bytes.Buffer
}

// Dial connects to the host and port, for calls with the plaintext of a key.
func Dial(ctx context.Context, address, key string) (*Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	head := " HTTP/1.1\r\nHost: " + address + "\r\nContent-Type: application/json\r\nAuthorization: Bearer " + key
	return &Conn{Conn: c, head: []byte(head), in: bufio.NewReaderSize(c, 4096)}, nil
}

// Send sends the call, whose body is JSON without a Stream, and returns the
// status and the body of the response. The body is valid until the next call.
func (c *Conn) Send(call *Call) (status int, body []byte, err error) {
	c.out = call.append(c.out[:0], c.head)
	if _, err := c.Write(c.out); err != nil {
		return 0, nil, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	c.body.Reset()
	if _, err := c.body.ReadFrom(response.Body); err != nil {
		return 0, nil, err
	}
	return response.StatusCode, c.body.Bytes(), nil
}

// append appends the call in the form that HTTP/1.1 has.
func (c *Call) append(b, head []byte) []byte {
	b = append(append(b, c.Method...), ' ')
	b = append(append(b, c.target()...), head...)
	if c.Wait >= time.Second && c.Method != http.MethodGet {
		b = strconv.AppendInt(append(b, "\r\nPrefer: wait="...), int64(c.Wait/time.Second), 10)
	}
	if c.IdempotencyKey != "" {
		b = append(append(b, "\r\nIdempotency-Key: "...), c.IdempotencyKey...)
	}
	if c.CorrelationID != "" {
		b = append(append(b, "\r\nX-Correlation-Id: "...), c.CorrelationID...)
	}
	for name, values := range c.Header {
		b = append(append(append(append(b, "\r\n"...), name...), ": "...), strings.Join(values, ", ")...)
	}
	b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(c.Body)), 10)
	return append(append(b, "\r\n\r\n"...), c.Body...)
}
