package load

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast/holdfast/client"
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
	*client.Conn
	target Target
	call   client.Call
}

func (t Target) dial(ctx context.Context) (*conn, error) {
	c, err := client.Dial(ctx, t.Address, t.Key)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", t.Address, err)
	}
	return &conn{Conn: c, target: t}, nil
}

// send makes the call and returns its answer.
func (c *conn) send(call Call) (a Answer, err error) {
	began := time.Now()
	c.fill(call)
	a.Status, a.Body, err = c.Send(&c.call)
	a.Took = time.Since(began)
	return a, err
}

// fill makes the connection's call. The ids need no escaping.
func (c *conn) fill(call Call) {
	made := &c.call
	made.Body, made.Wait = made.Body[:0], 0
	switch call.Verb {
	case Add:
		made.Method, made.Path = http.MethodPost, "/v1/carts/"+call.CartID+"/items"
		made.Body = append(append(append(made.Body, `{"variant_id":"`...), call.VariantID...), `","quantity":1}`...)
	case Checkout:
		made.Method, made.Path = http.MethodPost, "/v1/carts/"+call.CartID+"/checkout"
	case Remove:
		made.Method, made.Path = http.MethodDelete, "/v1/carts/"+call.CartID+"/items/"+call.VariantID
	case Set:
		made.Method, made.Path = http.MethodPatch, "/v1/carts/"+call.CartID+"/items/"+call.VariantID
		made.Body = append(strconv.AppendInt(append(made.Body, `{"quantity":`...), int64(call.Quantity), 10), '}')
	}
	if call.Verb == Add || call.Verb == Set {
		made.Wait = time.Duration(c.target.Wait) * time.Second
	}
}
