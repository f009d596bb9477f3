package load

import (
	"net/http"
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
