package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/client"
	"github.com/holdfast/holdfast/internal/sleep"
)

// API is one process that answers calls.
type API struct {
	// Name is the name of the process, Address its host and port.
	Name, Address string
	// Down returns for how long the process could not answer between two
	// moments. This time does not count as latency.
	Down func(from, to time.Time) time.Duration
	// Open reports whether a load balancer would send a call to it; nil:
	// always.
	Open func() bool
}

// call is one call, including its repetitions.
type call struct {
	verb        string // for the statistics
	tenant      *Tenant
	method      string
	path        string
	body        any
	key         string
	correlation string
	wait        int // in seconds, sent as Prefer: wait
}

// reply is the result of one attempt.
type reply struct {
	api      *API
	status   int // 0: no answer
	code     string
	actual   string // the field of the error conflicting_state
	body     []byte
	replayed bool
	err      error
	at       time.Time
}

func (r *reply) ok() bool { return r.status >= 200 && r.status < 300 }

// open reports whether the outcome is unknown or the call was not tried. Such a
// call can be sent again under its key.
func (r *reply) open() bool {
	return r.status == 0 || r.status == http.StatusServiceUnavailable || r.status == http.StatusTooManyRequests || r.status >= 500
}

// harmless reports whether the answer means that the call had no effect.
func (r *reply) harmless() bool {
	return r.status == http.StatusTooManyRequests ||
		r.status == http.StatusServiceUnavailable && (r.code == "overloaded" || r.code == "tenant_moving" || r.code == "cell_unavailable")
}

const (
	// attemptMax bounds one attempt, far above the longest permitted time of an
	// answer.
	attemptMax = 75 * time.Second
	// addMax is the longest time that the answer to an add may take, even in an
	// outage.
	addMax = 15 * time.Second
)

// once sends the call once.
func (t *Traffic) once(ctx context.Context, api *API, c *call) (r reply) {
	r.api = api
	began, phase := time.Now(), t.phases.present()
	sent, response, err := c.send(ctx, t.http, api)
	if !sent {
		r.err, r.at = err, time.Now()
		return r
	}
	r.at = time.Now()
	if response == nil {
		r.err = err
		if ctx.Err() != nil && began.Add(attemptMax).After(r.at) {
			return r // the end of the traffic cancelled the call
		}
	} else {
		r.status, r.body = response.Status, response.Body
		r.replayed = response.Header.Get("Idempotency-Replayed") == "true"
	}
	if refused, ok := errors.AsType[*client.Error](err); ok {
		r.code, r.actual = refused.Code, refused.Actual
	}
	t.measure(c, &r, began)
	t.phases.note(phase, c.verb, &r, r.at.Sub(began))
	return r
}

// send sends the call to one API. sent is false if there is no such call.
func (c *call) send(ctx context.Context, over *http.Client, api *API) (sent bool, response *client.Response, err error) {
	made := client.Call{Method: c.method, Path: c.path}
	made.IdempotencyKey, made.CorrelationID = c.key, c.correlation
	if c.wait > 0 {
		made.Header = http.Header{"Prefer": {"wait=" + strconv.Itoa(c.wait)}}
	}
	if c.body != nil {
		if made.Body, err = json.Marshal(c.body); err != nil {
			return false, nil, err
		}
	}
	shop, err := client.New(client.Config{URLs: []string{"http://" + api.Address}, Key: c.tenant.Key, AttemptTimeout: attemptMax, HTTP: over})
	if err != nil {
		return false, nil, err
	}
	response, err = shop.Send(ctx, made)
	return true, response, err
}

// measure counts the answer and checks the time it took.
func (t *Traffic) measure(c *call, r *reply, began time.Time) {
	took := r.at.Sub(began) - r.api.Down(began, r.at)
	t.stats.note(c.verb, r, took)
	wait := time.Duration(c.wait) * time.Second
	if c.verb == verbAdd && took-wait > t.addMax {
		t.findings.Add(RuleAnswerFast, "an add to %s took %.1fs (it waited up to %ds), began at %s, and was answered %d %s %v",
			r.api.Name, took.Seconds(), c.wait, began.Format("15:04:05.000"), r.status, r.code, r.err)
	}
	switch {
	case r.status == http.StatusInternalServerError, r.status == http.StatusUnauthorized, r.status == http.StatusForbidden,
		r.status == http.StatusBadGateway:
		t.findings.Add(RuleAnswer, "%s %s to %s was answered %d: %s", c.method, c.path, r.api.Name, r.status, r.body)
	case r.ok() && c.verb == verbAdd:
		t.Recovery.acked(r.api.Name, r.at)
	default:
	}
}

// settle sends the call until its outcome is known. It returns false if ctx
// ended before, or if the call has no key and its outcome is unknown.
func (t *Traffic) settle(ctx context.Context, random *rand.Rand, c *call) (reply, bool) {
	for attempt := 0; ; attempt++ {
		r := t.once(ctx, t.pick(random, attempt), c)
		if !r.open() {
			return r, true
		}
		if c.key == "" && c.method != http.MethodGet && c.method != http.MethodPut {
			if !r.harmless() {
				return r, false
			}
			if c.correlation != "" { // a call without an effect is over; the next one is another call
				t.Record.refused(c.correlation, strconv.Itoa(r.status)+" "+r.code)
				c.correlation = newName("c")
			}
		}
		if sleep.For(ctx, time.Duration(30+random.IntN(50*min(attempt+1, 10)))*time.Millisecond) != nil {
			return r, false
		}
	}
}

// pick returns a random open API for the first attempt, and then the others in
// turn.
func (t *Traffic) pick(random *rand.Rand, attempt int) *API {
	open := make([]*API, 0, len(t.apis))
	for _, api := range t.apis {
		if api.Open == nil || api.Open() {
			open = append(open, api)
		}
	}
	if len(open) == 0 {
		open = t.apis
	}
	if attempt == 0 {
		return open[random.IntN(len(open))]
	}
	return open[attempt%len(open)]
}

func newName(kind string) string { return kind + "-" + uuid.NewString() }
