package storefront

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast/holdfast/cmd/internal/client"
)

// Config says which API to call and how. The zero value of a field is its default, where it has one.
type Config struct {
	// URLs are the API's addresses (http://host:port), at least one. Calls take them in turn, and a retry the next one.
	URLs []string
	// Key is the plaintext of an API key.
	Key string
	// Connections is how many calls are in flight at each address at most; default 64.
	Connections int
	// AttemptTimeout bounds one attempt without what it asks the server to wait; default 15 s.
	AttemptTimeout time.Duration
	// PatienceFor is how long a call is tried again before its error is returned; default 1 minute.
	PatienceFor time.Duration
}

// Shop calls the API. It is safe for concurrent use.
type Shop struct {
	config  Config
	http    *http.Client
	turn    atomic.Uint64
	retries atomic.Int64
}

// New makes a shop. Errors: client.ErrNoKey; no address.
func New(c Config) (*Shop, error) {
	if c.Key == "" {
		return nil, client.ErrNoKey
	}
	if len(c.URLs) == 0 {
		return nil, errors.New("storefront: no URL to call")
	}
	urls := make([]string, len(c.URLs))
	for i, u := range c.URLs {
		urls[i] = strings.TrimSuffix(u, "/")
	}
	c.URLs = urls
	if c.Connections == 0 {
		c.Connections = 64
	}
	if c.AttemptTimeout == 0 {
		c.AttemptTimeout = 15 * time.Second
	}
	if c.PatienceFor == 0 {
		c.PatienceFor = time.Minute
	}
	return &Shop{config: c, http: &http.Client{Transport: &http.Transport{
		MaxConnsPerHost: c.Connections, MaxIdleConnsPerHost: c.Connections, IdleConnTimeout: 30 * time.Second,
		DisableCompression: true,
	}}}, nil
}

// Retries is how many attempts were answered by nothing, or by a status that asks for another one.
func (s *Shop) Retries() int64 { return s.retries.Load() }

// Close closes the connections that are not in use.
func (s *Shop) Close() { s.http.CloseIdleConnections() }

// call is one call of the API.
type call struct {
	method, path string
	body         any    // nil: none
	key          string // the idempotency key; without one the call is safe to repeat by itself
	wait         time.Duration
}

// do makes the call and reads the answer into result. It tries again what was not answered, and 408, 429, 500, 502, 503
// and 504, with a wait that doubles, until ctx ends or PatienceFor is over. Any other status from 400 on is a
// *client.Problem.
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
		if after < 0 || ctx.Err() != nil || time.Since(began) > s.config.PatienceFor {
			return fmt.Errorf("%s %s: %w", c.method, c.path, err)
		}
		s.retries.Add(1)
		pause := max(after, wait/2+rand.N(wait)) //nolint:gosec // so that callers don't come back all at once; not a secret
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %s: %w", c.method, c.path, errors.Join(context.Cause(ctx), err))
		case <-time.After(pause):
		}
	}
}

// Waits between attempts; what a Retry-After asks for is kept up to retryAfterMax.
const (
	firstWait     = 20 * time.Millisecond
	lastWait      = time.Second
	retryAfterMax = 5 * time.Second
)

// never is how long to wait before a retry that can't help.
const never = time.Duration(-1)

// attempt sends the call once. With an error it says how long to wait at least before the next attempt, or never.
func (s *Shop) attempt(ctx context.Context, c call, body []byte, result any) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.AttemptTimeout+c.wait)
	defer cancel()
	base := s.config.URLs[s.turn.Add(1)%uint64(len(s.config.URLs))]
	request, err := http.NewRequestWithContext(ctx, c.method, base+c.path, bytes.NewReader(body))
	if err != nil {
		return never, err
	}
	request.Header.Set("Authorization", "Bearer "+s.config.Key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		request.Header.Set("Idempotency-Key", c.key)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return 0, fmt.Errorf("read the answer: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return retryAfter(response), problemOf(response, text)
	}
	if err := json.Unmarshal(text, result); err != nil {
		return never, fmt.Errorf("what answers at %s is no Holdfast service: %w", base, err)
	}
	return 0, nil
}

// answerMax bounds what is read of one answer, in bytes: a cart may have a thousand reservations.
const answerMax = 16 << 20

// retryAfter is how long to wait before the answer's call is tried again, or never.
func retryAfter(response *http.Response) time.Duration {
	switch response.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return never
	}
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, retryAfterMax)
}

func problemOf(response *http.Response, text []byte) error {
	var p client.Problem
	if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
		return fmt.Errorf("the service answers %s", response.Status)
	}
	p.Status = response.StatusCode
	return &p
}
