package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/holdfast/holdfast/bench/baselines"
	"github.com/holdfast/holdfast/bench/load"
)

// Parts of the answers' bodies: they are searched and not decoded, because the
// load shares its cores with what it measures.
var (
	doneJSON     = []byte(`"status":"done"`)
	releasedNone = []byte(`"released":0`)
)

// granted fails unless the answer to an add or a set is a request that is done.
func granted(a load.Answer) error {
	switch {
	case a.Status == http.StatusAccepted:
		return fmt.Errorf("a request was not decided in %d s", waitSeconds)
	case !bytes.Contains(a.Body, doneJSON):
		return fmt.Errorf("a request was not granted: %.200s", a.Body)
	}
	return nil
}

// checkouter only checks out.
type checkouter struct {
	carts *carts
	cart  load.Item
	again bool // the last call was refused
	sold  baselines.Sold
}

func (c *checkouter) Next() (load.Call, bool) {
	if !c.again {
		cart, ok := c.carts.take()
		if !ok {
			return load.Call{}, false
		}
		c.cart = cart
	}
	return load.Call{Verb: load.Checkout, Item: c.cart}, true
}

func (c *checkouter) Answered(a load.Answer) error {
	c.again = a.Refused()
	if c.again {
		return nil
	}
	if a.Status != http.StatusOK {
		return fmt.Errorf("the checkout of cart %s was answered %d: %.200s", c.cart.CartID, a.Status, a.Body)
	}
	c.sold.Committed++
	return nil
}

func (c *checkouter) answered() baselines.Sold { return c.sold }

// cycler adds a unit of the hot variant to a new cart, waits for the outcome,
// and checks the cart out.
type cycler struct {
	cart load.Item
	held bool // by the cart
	sold baselines.Sold
}

func (c *cycler) Next() (load.Call, bool) {
	if c.held {
		return load.Call{Verb: load.Checkout, Item: c.cart}, true
	}
	c.cart = toHot()
	return load.Call{Verb: load.Add, Item: c.cart}, true
}

func (c *cycler) Answered(a load.Answer) error {
	if a.Refused() {
		return nil // it is sent again, an add for another cart
	}
	if !c.held {
		c.held = true
		c.sold.Granted++
		return granted(a)
	}
	if a.Status != http.StatusOK {
		return fmt.Errorf("the checkout of cart %s was answered %d: %.200s", c.cart.CartID, a.Status, a.Body)
	}
	c.held = false
	c.sold.Committed++
	return nil
}

func (c *cycler) answered() baselines.Sold { return c.sold }

// The mix, in percent of the calls. The rest are adds.
const (
	mixCheckouts = 25
	mixRemovals  = 10
	mixChanges   = 5
)

// mixer makes the calls of a mixed sale of the hot variant. Holds that it does
// not end soon expire.
type mixer struct {
	// ttl is how long a hold lasts.
	ttl  time.Duration
	held []heldCart // oldest first
	// owed are verbs that were drawn while there was no cart for them. Each
	// replaces a later add, so that the mix keeps its shares.
	owed []load.Verb
	call load.Call
	sold baselines.Sold
	// adds is the part of sold.Granted that was added. lapsed counts checkouts
	// and removals of expired holds; they ended nothing.
	adds, lapsed int64
}

type heldCart struct {
	load.Item
	since time.Time
}

// Next draws a verb. Without a cart to end or change it adds.
func (m *mixer) Next() (load.Call, bool) {
	m.abandon()
	verb, last := anyVerb(), len(m.held)-1
	switch {
	case verb != load.Add && last < 0:
		m.owed = append(m.owed, verb)
		verb = load.Add
	case verb == load.Add && last >= 0 && len(m.owed) > 0:
		verb = m.owed[0]
		m.owed = m.owed[1:]
	}
	if verb == load.Add {
		m.call = load.Call{Verb: verb, Item: toHot()}
		return m.call, true
	}
	m.call = load.Call{Verb: verb, Item: m.held[last].Item, Quantity: 1 + rand.IntN(3)} //nolint:gosec // no secret
	m.held = m.held[:last]
	return m.call, true
}

// abandon leaves the carts that are past half their time.
func (m *mixer) abandon() {
	for len(m.held) > 0 && time.Since(m.held[0].since) > m.ttl/2 {
		m.held = m.held[1:]
	}
}

func anyVerb() load.Verb {
	switch drawn := rand.IntN(100); { //nolint:gosec // no secret
	case drawn < mixCheckouts:
		return load.Checkout
	case drawn < mixCheckouts+mixRemovals:
		return load.Remove
	case drawn < mixCheckouts+mixRemovals+mixChanges:
		return load.Set
	default:
		return load.Add
	}
}

// Answered counts what took effect.
func (m *mixer) Answered(a load.Answer) error {
	if a.Refused() {
		return nil
	}
	switch m.call.Verb {
	case load.Add, load.Set:
		if err := granted(a); err != nil {
			return err
		}
		m.sold.Granted++
		if m.call.Verb == load.Add {
			m.adds++
		}
		m.held = append(m.held, heldCart{m.call.Item, time.Now()})
	case load.Checkout:
		if a.Status == http.StatusConflict {
			m.lapsed++
		} else {
			m.sold.Committed++
		}
	case load.Remove:
		if bytes.Contains(a.Body, releasedNone) {
			m.lapsed++
		} else {
			m.sold.Released++
		}
	}
	return nil
}

func (m *mixer) answered() baselines.Sold { return m.sold }
