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

// ErrNoKey means that HOLDFAST_KEY is not set.
var ErrNoKey = errors.New("HOLDFAST_KEY is not set: make a key with `holdfast keys create`, or take the one that `holdfast run` prints")

// timeout bounds one call. The import of a large file takes longest.
const timeout = 10 * time.Minute

// New makes a client of the API at base (http://host:port) with the plaintext
// of a key.
func New(base, key string) (*Client, error) {
	if key == "" {
		return nil, ErrNoKey
	}
	return &Client{
		base: strings.TrimSuffix(base, "/"), key: key,
		http: &http.Client{Timeout: timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}},
	}, nil
}

// Problem is an error answer of the API in the form of RFC 9457.
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

// Error returns the problem in one sentence.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d %s)", p.Detail, p.Status, p.Code)
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "; %s %s", e.Field, e.Message)
	}
	return b.String()
}

// Path joins segments to a path, each escaped as a whole: rolls/buns is one
// segment.
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString("/")
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// Do sends body as JSON, unless it is nil, and decodes the answer into result,
// unless it is nil. Errors: *Problem, and the reason why the call was not
// answered.
func (c *Client) Do(ctx context.Context, method, path string, body, result any) error {
	var sent io.Reader
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
	call := Call{Method: method, Path: path, ContentType: contentType, Body: body}
	_, err := call.Send(ctx, c.http, c.base, c.key, result)
	if failed, ok := errors.AsType[*url.Error](err); ok && failed.Op != "parse" {
		// without the method and the address, which are in the new error
		return fmt.Errorf("nothing answers at %s, which HOLDFAST_URL names (`holdfast run` starts a service on http://localhost:8080): %w", c.base, failed.Err)
	}
	return err
}

// Call is one call of an API.
type Call struct {
	Method, Path string
	// ContentType is the content type of Body.
	ContentType string
	Body        io.Reader // nil: no body
	// IdempotencyKey is sent unless it is empty.
	IdempotencyKey string
}

// Answer is an answer that arrived completely.
type Answer struct {
	Status int
	Header http.Header
}

// answerMax bounds one answer, in bytes: a cart may have a thousand
// reservations.
const answerMax = 16 << 20

// Send makes the call once, at the API at base with a plaintext key, and
// decodes the body of the answer into result, unless result is nil. The answer
// is nil if none arrived completely. Errors: *Problem; the reason why the call
// was not answered; an answer that does not come from a Holdfast service.
func (c *Call) Send(ctx context.Context, over *http.Client, base, key string, result any) (*Answer, error) {
	request, err := http.NewRequestWithContext(ctx, c.Method, base+c.Path, c.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", c.Method, c.Path, err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	if c.Body != nil {
		request.Header.Set("Content-Type", c.ContentType)
	}
	if c.IdempotencyKey != "" {
		request.Header.Set("Idempotency-Key", c.IdempotencyKey)
	}
	response, err := over.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, answerMax))
	if err != nil {
		return nil, fmt.Errorf("the service answers %s, but the answer is cut off: %w", response.Status, err)
	}
	answer := &Answer{response.StatusCode, response.Header}
	if answer.Status >= http.StatusBadRequest {
		return answer, problemOf(response, text)
	}
	if result == nil {
		return answer, nil
	}
	if err := json.Unmarshal(text, result); err != nil {
		return answer, fmt.Errorf("the server at %s is not a Holdfast service: %w", base, err)
	}
	return answer, nil
}

func problemOf(response *http.Response, text []byte) error {
	var p Problem
	if err := json.Unmarshal(text, &p); err != nil || p.Code == "" {
		return fmt.Errorf("the server is not a Holdfast service: %s", response.Status)
	}
	p.Status = response.StatusCode
	return &p
}
