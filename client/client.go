package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Config is which API to call and how. The zero value of a field is its
// default, where it has one.
type Config struct {
	// URLs are the addresses of the API's processes (http://host:port), at
	// least one. Calls use them in turn, and a retry uses the next one.
	URLs []string
	// Key is the plaintext of an API key.
	Key string
	// Connections is the largest number of calls in flight at each address;
	// default 64. It has no effect with HTTP.
	Connections int
	// AttemptTimeout bounds one attempt, in addition to the time that the call
	// asks the service to wait; default 15 s.
	AttemptTimeout time.Duration
	// MaxRetries is how often a call is sent again at most, after the first
	// attempt; default 3, below 0 for no second attempt.
	MaxRetries int
	// MaxRetryWait is the longest wait between two attempts, whatever
	// Retry-After the response has; default 20 s.
	MaxRetryWait time.Duration
	// HTTP makes the calls; nil for a client with its own connections.
	HTTP *http.Client
	// Retrying is called before a call is sent again, with the error of the
	// attempt before. Several calls may call it at once. Nil: not called.
	Retrying func(error)
}

// Client calls one API with one key. It is safe for concurrent use.
type Client struct {
	config Config
	calls  atomic.Uint64
}

// New makes a client. Errors: no key; no address, or an invalid one.
func New(c Config) (*Client, error) {
	if c.Key == "" {
		return nil, errors.New("client: no API key")
	}
	if len(c.URLs) == 0 {
		return nil, errors.New("client: no URL to call")
	}
	urls := make([]string, len(c.URLs))
	for i, u := range c.URLs {
		if _, err := url.Parse(u); err != nil {
			return nil, err
		}
		urls[i] = strings.TrimSuffix(u, "/")
	}
	c.URLs = urls
	c.Connections = cmp.Or(c.Connections, 64)
	c.AttemptTimeout = cmp.Or(c.AttemptTimeout, 15*time.Second)
	c.MaxRetries = cmp.Or(c.MaxRetries, 3)
	c.MaxRetryWait = cmp.Or(c.MaxRetryWait, 20*time.Second)
	if c.Retrying == nil {
		c.Retrying = func(error) {}
	}
	if c.HTTP == nil {
		c.HTTP = &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: c.Connections, MaxIdleConnsPerHost: c.Connections,
			IdleConnTimeout: 30 * time.Second, DisableCompression: true,
		}}
	}
	return &Client{config: c}, nil
}

// Close closes the connections that are not in use.
func (c *Client) Close() { c.config.HTTP.CloseIdleConnections() }

// Do makes the call and decodes the body of the response into result, unless
// result is nil. It sends the call again as the package comment says, unless it
// has a Stream. Errors: *Error; the reason why the call was not answered; ctx's
// cause.
func (c *Client) Do(ctx context.Context, call Call, result any) error {
	if call.IdempotencyKey == "" && call.writes() && c.config.MaxRetries > 0 && call.Stream == nil {
		call.IdempotencyKey = rand.Text()
	}
	for retries := 0; ; retries++ {
		response, err := c.Send(ctx, call)
		if err == nil {
			return response.decode(result)
		}
		if retries >= c.config.MaxRetries || !isRetryable(err) || call.Stream != nil || ctx.Err() != nil {
			return err
		}
		c.config.Retrying(err)
		if sleep(ctx, c.pause(retries, err)) != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// firstWait is the wait before the first retry if the response names none. Each
// further one is twice the one before.
const firstWait = 100 * time.Millisecond

// pause is how long to wait after an attempt that failed, and a quarter more at
// random, so that callers that were refused together do not come back together.
func (c *Client) pause(retries int, err error) time.Duration {
	wait := firstWait << min(retries, 20)
	if refused, ok := errors.AsType[*Error](err); ok && refused.RetryAfter > 0 {
		wait = refused.RetryAfter
	}
	wait = min(wait, c.config.MaxRetryWait)
	return wait + mathrand.N(wait/4+1) //nolint:gosec // not a secret
}

// isRetryable reports whether the call may be answered differently when it is
// sent again.
func isRetryable(err error) bool {
	refused, ok := errors.AsType[*Error](err)
	if !ok {
		return true // no answer
	}
	switch refused.Status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// sleep waits, or until ctx ends, and then returns its error.
func sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// CallOpts are the options of a call. Nil is the zero value.
type CallOpts struct {
	// IdempotencyKey names the call: repeated with the same key, it has no
	// second effect and returns the first response. Empty: a random key, which
	// only the retries of this call use.
	IdempotencyKey string
	// CorrelationID is recorded with the call's changes and log lines; empty:
	// one that the service makes.
	CorrelationID string
	// Wait is how long the service may wait for the outcome before it answers,
	// in whole seconds.
	Wait time.Duration
	// WaitForStock makes a request for units wait in line if it comes up short, and
	// Allotment takes its units from an allotment of the variant.
	WaitForStock bool
	Allotment    string
	// Customer is who requests units, whose limits apply; the cart if it is empty.
	// AdmissionToken is spent if the variant requires one.
	Customer, AdmissionToken string
	// Reason is why units are adjusted, moved or returned, for the record.
	Reason string
	// Header are further headers; nil for none.
	Header http.Header
}

func (o *CallOpts) reason() string {
	if o == nil {
		return ""
	}
	return o.Reason
}

// do makes a call with a body, unless that is nil, and returns what the
// response contains.
func do[T any](ctx context.Context, c *Client, opts *CallOpts, method, path string, body any) (result T, err error) {
	call := Call{Method: method, Path: path}
	if opts != nil {
		call.CallOpts = *opts
	}
	if body != nil {
		if call.Body, err = json.Marshal(body); err != nil {
			return result, fmt.Errorf("client: encode the body: %w", err)
		}
	}
	err = c.Do(ctx, call, &result)
	return result, err
}
