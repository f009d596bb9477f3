package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Target is where the calls go.
type Target struct {
	// Address is the server's host and port, Key the API key.
	Address, Key string
	// Wait is the seconds the caller prefers to wait for the outcome; 0 for none.
	Wait int
	// AfterRefusal is how long a caller of a closed load waits after a 429 or a 503.
	AfterRefusal time.Duration
	// Ready, if not nil, is called once every connection is open, before the first call.
	Ready func()
}

// Item is one add-to-cart.
type Item struct{ CartID, VariantID string }

// conn is one connection to the target.
type conn struct {
	net.Conn
	target Target
	in     *bufio.Reader
	out    []byte
}

func (t Target) dial(ctx context.Context) (*conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", t.Address, err)
	}
	return &conn{Conn: c, target: t, in: bufio.NewReaderSize(c, 4096)}, nil
}

// addItem makes the call and returns the answer's status. The ids need no escaping.
func (c *conn) addItem(item Item) (status int, err error) {
	const before, after = `{"variant_id":"`, `","quantity":1}`
	b := c.out[:0]
	b = append(b, "POST /v1/carts/"...)
	b = append(b, item.CartID...)
	b = append(b, "/items HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nAuthorization: Bearer "...)
	b = append(b, c.target.Key...)
	if c.target.Wait > 0 {
		b = strconv.AppendInt(append(b, "\r\nPrefer: wait="...), int64(c.target.Wait), 10)
	}
	b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(before)+len(item.VariantID)+len(after)), 10)
	b = append(append(append(append(b, "\r\n\r\n"...), before...), item.VariantID...), after...)
	c.out = b
	if _, err := c.Write(b); err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0, err
	}
	return response.StatusCode, nil
}
