package storefront

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/client"
	"github.com/holdfast/holdfast/internal/sleep"
)

// Config is which API to call and how. The zero value of a field is its
// default, where it has one.
type Config struct {
	// URLs are the API's addresses (http://host:port), at least one. Calls use
	// them in turn, and a retry uses the next one.
	URLs []string
	// Key is the plaintext of an API key.
	Key string
	// Connections is the maximum number of calls in flight at each address;
	// default 64.
	Connections int
	// AttemptTimeout bounds one attempt, in addition to the time that it asks
	// the server to wait; default 15 s.
	AttemptTimeout time.Duration
	// RetryFor is how long a call is retried before its error is returned;
	// default 1 minute.
	RetryFor time.Duration
}

// Shop calls the API. It is safe for concurrent use.
type Shop struct {
	config  Config
	http    *http.Client
	calls   atomic.Uint64
	retries atomic.Int64
}

// New makes a shop. Errors: client.ErrNoKey; no address, or an invalid one.
func New(c Config) (*Shop, error) {
	if c.Key == "" {
		return nil, client.ErrNoKey
	}
	if len(c.URLs) == 0 {
		return nil, errors.New("storefront: no URL to call")
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
	c.RetryFor = cmp.Or(c.RetryFor, time.Minute)
	return &Shop{config: c, http: &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: c.Connections, MaxIdleConnsPerHost: c.Connections, IdleConnTimeout: 30 * time.Second,
		DisableCompression: true,
	}}}, nil
}

// Retries returns how many attempts had no answer, or a status that allows a
// retry.
func (s *Shop) Retries() int64 { return s.retries.Load() }

// Close closes the connections that are not in use.
func (s *Shop) Close() { s.http.CloseIdleConnections() }

// call is one call of the API.
type call struct {
	method, path string
	body         any    // nil: no body
	key          string // the idempotency key; a call without one is safe to repeat
	wait         time.Duration
}

// do makes the call and decodes the answer into result. It retries calls
// without an answer and the statuses 408, 429, 500, 502, 503 and 504, with a
// wait that doubles, until ctx ends or RetryFor is over. Any other status
// from 400 on is a *client.Problem.
func (s *Shop) do(ctx context.Context, c call, result any) error {
	var body []byte
	if c.body != nil {
		var err error
		if body, err = json.Marshal(c.body); err != nil {
			return fmt.Errorf("%s %s: encode the body: %w", c.method, c.path, err)
		}
	}
	began := time.Now()
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		after, err := s.attempt(ctx, c, body, result)
		if err == nil {
			return nil
		}
		if after < 0 || ctx.Err() != nil || time.Since(began) > s.config.RetryFor {
			return fmt.Errorf("%s %s: %w", c.method, c.path, err)
		}
		s.retries.Add(1)
		pause := max(after, wait/2+rand.N(wait)) //nolint:gosec // so that callers don't come back all at once; not a secret
		if sleep.For(ctx, pause) != nil {
			return fmt.Errorf("%s %s: %w", c.method, c.path, errors.Join(context.Cause(ctx), err))
		}
	}
}

// Waits between attempts. A Retry-After is followed up to retryAfterMax.
const (
	firstWait     = 20 * time.Millisecond
	lastWait      = time.Second
	retryAfterMax = 5 * time.Second
)

// never is the wait before a retry that cannot help.
const never = time.Duration(-1)

// attempt sends the call once. With an error it returns the least wait before
// the next attempt, or never.
func (s *Shop) attempt(ctx context.Context, c call, body []byte, result any) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.AttemptTimeout+c.wait)
	defer cancel()
	base := s.config.URLs[s.calls.Add(1)%uint64(len(s.config.URLs))]
	sent := client.Call{Method: c.method, Path: c.path, IdempotencyKey: c.key}
	if body != nil {
		sent.ContentType, sent.Body = "application/json", bytes.NewReader(body)
	}
	answer, err := sent.Send(ctx, s.http, base, s.config.Key, result)
	if answer == nil {
		return 0, err
	}
	return retryAfter(answer), err
}

// retryAfter returns the wait before the answer's call is sent again, or never.
func retryAfter(answer *client.Answer) time.Duration {
	switch answer.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return never
	}
	seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, retryAfterMax)
}
