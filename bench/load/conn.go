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

// conn is one connection to the target. It sends each call once, with as little
// work as possible, and has no timeouts but the deadlines of the connection.
// One goroutine uses it.
type conn struct {
	net.Conn
	target Target
	head   []byte // the part of a request that all calls share
	in     *bufio.Reader
	out    []byte
	body   []byte // of the request
	answer bytes.Buffer
}

func (t Target) dial(ctx context.Context) (*conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", t.Address, err)
	}
	head := " HTTP/1.1\r\nHost: " + t.Address + "\r\nContent-Type: application/json\r\nAuthorization: Bearer " + t.Key
	return &conn{Conn: c, target: t, head: []byte(head), in: bufio.NewReaderSize(c, 4096)}, nil
}

// send makes the call and returns its answer.
func (c *conn) send(call Call) (a Answer, err error) {
	began := time.Now()
	a.Status, a.Body, err = c.exchange(call)
	a.Took = time.Since(began)
	return a, err
}

func (c *conn) exchange(call Call) (status int, body []byte, err error) {
	c.fill(call)
	if _, err := c.Write(c.out); err != nil {
		return 0, nil, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	c.answer.Reset()
	if _, err := c.answer.ReadFrom(response.Body); err != nil {
		return 0, nil, err
	}
	return response.StatusCode, c.answer.Bytes(), nil
}

// fill makes the request of a call. The ids need no escaping.
func (c *conn) fill(call Call) {
	c.body = c.body[:0]
	method, path := http.MethodPost, "/v1/carts/"+call.CartID
	switch call.Verb {
	case Add:
		path += "/items"
		c.body = append(append(append(c.body, `{"variant_id":"`...), call.VariantID...), `","quantity":1}`...)
	case Checkout:
		path += "/checkout"
	case Remove:
		method, path = http.MethodDelete, path+"/items/"+call.VariantID
	case Set:
		method, path = http.MethodPatch, path+"/items/"+call.VariantID
		c.body = append(strconv.AppendInt(append(c.body, `{"quantity":`...), int64(call.Quantity), 10), '}')
	}
	b := append(append(c.out[:0], method...), ' ')
	b = append(append(b, path...), c.head...)
	if c.target.Wait > 0 && (call.Verb == Add || call.Verb == Set) {
		b = strconv.AppendInt(append(b, "\r\nPrefer: wait="...), int64(c.target.Wait), 10)
	}
	b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(c.body)), 10)
	c.out = append(append(b, "\r\n\r\n"...), c.body...)
}
