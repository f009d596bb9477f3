package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Call is one call of the API.
type Call struct {
	// Method and Path are those of the HTTP request. Path begins with /v1 and
	// may have a query. Path the function escapes ids.
	Method, Path string
	// ContentType is the media type of the body; empty: application/json.
	ContentType string
	Body        []byte // nil: no body
	// Stream is the body in place of Body, for a file. Such a call is never
	// sent a second time.
	Stream io.Reader
	CallOpts
}

// writes reports whether the API takes an idempotency key for the call.
func (c *Call) writes() bool {
	return c.Method == http.MethodPost || c.Method == http.MethodPatch || c.Method == http.MethodDelete
}

// Path joins segments to a path below /v1, each escaped as a whole: rolls/buns
// is one segment.
func Path(segments ...string) string {
	var path strings.Builder
	path.WriteString("/v1")
	for _, s := range segments {
		path.WriteString("/" + url.PathEscape(s))
	}
	return path.String()
}

// Response is a response that arrived completely.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// decode decodes the body into result, unless result is nil.
func (r *Response) decode(result any) error {
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(r.Body, result); err != nil {
		return fmt.Errorf("the server is not a Holdfast service: %w", err)
	}
	return nil
}

// responseMax bounds the body of a response, in bytes: a cart may have a
// thousand reservations.
const responseMax = 16 << 20

// Send sends the call once. The response is nil if none arrived completely.
// Errors: *Error for a status from 400 on, together with the response; the
// reason why the call was not answered.
func (c *Client) Send(ctx context.Context, call Call) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.AttemptTimeout+call.Wait)
	defer cancel()
	base := c.config.URLs[c.calls.Add(1)%uint64(len(c.config.URLs))]
	request, err := c.request(ctx, base, &call)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", call.Method, call.Path, err)
	}
	response, err := c.config.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, responseMax))
	if err != nil {
		return nil, fmt.Errorf("the service answers %s, but the answer is cut off: %w", response.Status, err)
	}
	complete := &Response{response.StatusCode, response.Header, body}
	if complete.Status >= http.StatusBadRequest {
		problem := complete.problem()
		return complete, problem
	}
	return complete, nil
}

func (c *Client) request(ctx context.Context, base string, call *Call) (*http.Request, error) {
	body := call.Stream
	if body == nil && call.Body != nil {
		body = bytes.NewReader(call.Body)
	}
	request, err := http.NewRequestWithContext(ctx, call.Method, base+call.Path, body)
	if err != nil {
		return nil, err
	}
	h := request.Header
	maps.Copy(h, call.Header)
	h.Set("Authorization", "Bearer "+c.config.Key)
	if body != nil {
		h.Set("Content-Type", cmp.Or(call.ContentType, "application/json"))
	}
	for name, value := range map[string]string{
		"Idempotency-Key": call.IdempotencyKey, "X-Correlation-Id": call.CorrelationID,
		"Customer-Id": call.Customer, "Admission-Token": call.AdmissionToken,
	} {
		if value != "" {
			h.Set(name, value)
		}
	}
	wait := "wait=" + strconv.Itoa(int(call.Wait/time.Second))
	switch {
	case call.Wait < time.Second:
	case call.Method == http.MethodGet:
		request.URL.RawQuery = strings.TrimPrefix(request.URL.RawQuery+"&"+wait, "&")
	default:
		h.Set("Prefer", wait)
	}
	return request, nil
}

// Error is a response with a status from 400 on. Its fields are those of the
// API's problems (RFC 9457).
type Error struct {
	Status int    `json:"status"`
	Code   string `json:"code"` // stable; empty if the response is not the API's
	Title  string `json:"title"`
	Detail string `json:"detail"`
	// Actual is the status that was found, with the code conflicting_state.
	Actual string `json:"actual"`
	// Errors are the invalid fields, with the code invalid.
	Errors []struct {
		Field   string `json:"field"`
		Message string `json:"message"`
	} `json:"errors"`
	// RetryAfter is the least time until the call is sent again; 0 if the
	// response names none.
	RetryAfter time.Duration `json:"-"`
}

// Error returns the error in one sentence.
func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("the server is not a Holdfast service: %d %s", e.Status, e.Title)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%d %s)", e.Detail, e.Status, e.Code)
	for _, field := range e.Errors {
		fmt.Fprintf(&b, "; %s %s", field.Field, field.Message)
	}
	return b.String()
}

// problem returns the error that the response describes.
func (r *Response) problem() *Error {
	var e Error
	if err := json.Unmarshal(r.Body, &e); err != nil || e.Code == "" {
		e = Error{Title: http.StatusText(r.Status)}
	}
	e.Status = r.Status
	if seconds, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return &e
}
