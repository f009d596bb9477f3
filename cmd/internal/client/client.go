package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Client calls one API with one key. It is safe for concurrent use.
type Client struct {
	base string
	key  string
	http *http.Client
}

// ErrNoKey says that there is no key to call with.
var ErrNoKey = errors.New("HOLDFAST_KEY is not set: make a key with `holdfast keys create`, or take the one that `holdfast run` prints")

// timeout bounds one call; importing a large file is the longest there is.
const timeout = 10 * time.Minute

// New makes a client of the API at base (http://host:port) with the plaintext of a key.
func New(base, key string) (*Client, error) {
	if key == "" {
		return nil, ErrNoKey
	}
	return &Client{
		base: strings.TrimSuffix(base, "/"), key: key,
		http: &http.Client{Timeout: timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}},
	}, nil
}

// Problem is an error that the API answered, as RFC 9457 has it.
type Problem struct { //nolint:errname // it is the word of RFC 9457
	Status int    `json:"status"`
	Title  string `json:"title"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Errors []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"errors"`
}

// Error is the problem in one sentence.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d %s)", p.Detail, p.Status, p.Code)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "; %s %s", e.Field, e.Message)
	}
	return b.String()
}

// Path joins segments to a path, each escaped whole: rolls/buns is one.
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/")
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// Do sends body as JSON (nil: none) and reads the answer into result (nil: not at all). Errors: *Problem, and what kept the
// call from being answered.
func (c *Client) Do(ctx context.Context, method, path string, body, result any) error {
	var sent io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode the body: %w", err)
		}
		sent = bytes.NewReader(encoded)
	}
	return c.Send(ctx, method, path, "application/json", sent, result)
}

// Send is Do with a body of any type.
func (c *Client) Send(ctx context.Context, method, path, contentType string, body io.Reader, result any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	if body != http.NoBody {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return unreachable(c.base, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		return problemOf(response)
	}
	if result == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(result); err != nil {
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	}
	return nil
}

// unreachable says what kept a call from being answered.
func unreachable(base string, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the method and the whole address once more
	}
	return fmt.Errorf("nothing answers at %s, which HOLDFAST_URL names (`holdfast run` starts a service on http://localhost:8080): %w", base, err)
}

// problemMax is how much of an answer that is no problem is read.
const problemMax = 1 << 20

func problemOf(response *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(response.Body, problemMax))
	if err != nil {
		return fmt.Errorf("the service answers %s, and breaks off: %w", response.Status, err)
	}
	var p Problem
	if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
		return fmt.Errorf("what answers is no Holdfast service: %s", response.Status)
	}
	p.Status = response.StatusCode
	return &p
}
