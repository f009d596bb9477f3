package callback

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/internal/checkouts"
	"github.com/holdfast/holdfast/internal/telemetry"
)

// Config is how calls are made.
type Config struct {
	// Secret is the key from which the secret of each tenant is derived.
	// Required.
	Secret Secret
	// Timeout bounds one call: the resolution of the host, the connection, and
	// the answer with its body. 0 is 10 seconds.
	Timeout time.Duration
	// AllowPrivate allows http, and every address: those of private networks,
	// of this host, and of a cloud's metadata service. It is for an
	// installation whose tenants are all trusted.
	AllowPrivate bool
	// Resolver looks up hosts; nil is net.DefaultResolver.
	Resolver *net.Resolver
}

const (
	defaultTimeout = 10 * time.Second
	// answerMax and headersMax are the largest answer that is read, in bytes.
	answerMax, headersMax = 4 << 10, 16 << 10
)

// Validator calls payment services. It is safe for concurrent use.
type Validator struct {
	secret       Secret
	timeout      time.Duration
	allowPrivate bool
	resolver     *net.Resolver
	client       *http.Client
}

// New makes a validator.
//
// Errors: a config without a secret, or with a negative timeout.
func New(c Config) (*Validator, error) {
	switch {
	case c.Secret.IsZero():
		return nil, errors.New("callbacks need a secret")
	case c.Timeout < 0:
		return nil, fmt.Errorf("the timeout of callbacks must not be negative, as %s is", c.Timeout)
	}
	v := &Validator{
		secret: c.Secret, timeout: cmp.Or(c.Timeout, defaultTimeout), allowPrivate: c.AllowPrivate,
		resolver: cmp.Or(c.Resolver, net.DefaultResolver),
	}
	dialer := &net.Dialer{Resolver: v.resolver}
	if !v.allowPrivate {
		dialer.Control = requirePublic
	}
	v.client = &http.Client{
		Transport: &http.Transport{
			Proxy:       nil, // the environment's proxy would reach what this host may not
			DialContext: dialer.DialContext,
			// A reused connection may be closed by the other side at that moment,
			// and then it is not known whether the call arrived.
			DisableKeepAlives: true,
			// A compressed answer could be much larger than what was read.
			DisableCompression:     true,
			MaxResponseHeaderBytes: headersMax,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return v, nil
}

// message is the body of a call.
type message struct {
	CheckoutID       uuid.UUID `json:"checkout_id"`
	CartID           string    `json:"cart_id"`
	PaymentReference string    `json:"payment_reference"`
	Attempt          int32     `json:"attempt"`
	Deadline         time.Time `json:"deadline"`
}

// Validate calls the payment service of the checkout once, and returns its
// result; see the package's documentation for the answers. Every error may be
// temporary: the caller tries again later, with the same checkout. An error
// contains neither the secret nor the URL's path and query.
func (v *Validator) Validate(ctx context.Context, c checkouts.Checkout) (result checkouts.Result, err error) {
	ctx, done := telemetry.Verb(ctx, "callback.validate")
	defer func() { done(string(result), err) }()
	ctx, cancel := context.WithTimeout(ctx, v.timeout)
	defer cancel()
	u, problem := v.parse(c.CallbackURL)
	if problem != "" {
		return "", fmt.Errorf("the callback URL %s", problem)
	}
	resp, err := v.post(ctx, u, c)
	if err != nil {
		return "", fmt.Errorf("call the payment service at %s: %w", u.Host, withoutURL(err))
	}
	defer func() { _ = resp.Body.Close() }()
	result, err = resultOf(resp)
	if err != nil {
		return "", fmt.Errorf("the answer of the payment service at %s: %w", u.Host, err)
	}
	return result, nil
}

// post sends the signed message. The caller closes the body of the response.
func (v *Validator) post(ctx context.Context, u *url.URL, c checkouts.Checkout) (*http.Response, error) {
	body, err := json.Marshal(message{c.CheckoutID, c.CartID, c.PaymentReference, c.Attempt, c.Deadline.UTC()})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	id, timestamp := c.CheckoutID.String(), strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "Holdfast")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", timestamp)
	req.Header.Set("Webhook-Signature", v.secret.ForTenant(c.TenantID).sign(id, timestamp, body))
	return v.client.Do(req)
}

// withoutURL returns the cause of an error of the client, without the URL,
// whose query may contain a credential.
func withoutURL(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}

// resultOf reads the answer.
func resultOf(resp *http.Response) (checkouts.Result, error) {
	switch {
	case resp.StatusCode == http.StatusAccepted:
		return checkouts.ResultPending, nil
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest:
		return "", fmt.Errorf("status %d: redirects are not followed", resp.StatusCode)
	case resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices:
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, answerMax+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the body: %w", err)
	case len(body) > answerMax:
		return "", fmt.Errorf("the body is longer than %d bytes", answerMax)
	case len(bytes.TrimSpace(body)) == 0:
		return checkouts.ResultPending, nil
	}
	return parseResult(body)
}

var errNotAnObject = errors.New("the body is not a JSON object")

// parseResult reads {"result":"paid"}. Other fields are ignored, the name and
// the value are matched exactly. It reads the object's tokens, because
// json.Unmarshal uses the last of several equal names.
func parseResult(body []byte) (checkouts.Result, error) {
	if !json.Valid(body) {
		return "", errNotAnObject
	}
	fields := make(map[any]json.RawMessage)
	dec := json.NewDecoder(bytes.NewReader(body))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return "", errNotAnObject
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return "", errNotAnObject
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return "", errNotAnObject
		}
		if _, twice := fields[name]; twice {
			return "", fmt.Errorf("the body has the field %.40q twice", name)
		}
		fields[name] = value
	}
	for _, result := range []checkouts.Result{checkouts.ResultPaid, checkouts.ResultFailed, checkouts.ResultPending} {
		if string(fields["result"]) == strconv.Quote(string(result)) {
			return result, nil
		}
	}
	return "", errors.New(`the body has no "result" that is "paid", "failed" or "pending"`)
}
