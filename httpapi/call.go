package httpapi

import (
	"context"
	"net/http"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast/holdfast/audit"
	"github.com/holdfast/holdfast/internal/telemetry"
	"github.com/holdfast/holdfast/requests"
	"github.com/holdfast/holdfast/tenants"
)

// call is one HTTP request on its way through the package.
type call struct {
	w http.ResponseWriter
	r *http.Request
	// id was made for the call: the id of the request it submits, and its correlation id where the caller gave none.
	id uuid.UUID
	// given is the caller's correlation id, "" if there is none or it is not valid; misnamed says then what is wrong with
	// it, for the calls that refuse it.
	given    string
	misnamed string
	who      tenants.Principal
	// key is the idempotency key, and body what the fingerprint takes the body for.
	key  string
	body []byte
}

type callKey struct{}

func callOf(ctx context.Context) *call {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		panic("httpapi: an endpoint was reached without a call")
	}
	return c
}

const correlationHeader = "X-Correlation-Id"

// begin makes the call of r, under a canonical path and with its correlation id in the context and in the answer.
func begin(w http.ResponseWriter, r *http.Request) *call {
	c := &call{w: w, id: requests.NewID()}
	switch given, _, err := only(r.Header, correlationHeader); {
	case err != nil:
		c.misnamed = "must stand once"
	case given == "":
	case !isToken(given):
		c.misnamed = tokenRule
	default:
		c.given = given
	}
	h := w.Header()
	h.Set(correlationHeader, c.correlationID())
	h.Set("Cache-Control", "no-store") // unless the answer says otherwise
	h.Set("X-Content-Type-Options", "nosniff")
	ctx := telemetry.WithCorrelation(r.Context(), c.correlationID())
	c.r = r.WithContext(context.WithValue(ctx, callKey{}, c))
	if path := canonicalPath(r.URL); path != r.URL.Path || r.URL.RawPath != "" {
		u := *r.URL
		u.Path, u.RawPath = path, ""
		c.r.URL = &u
	}
	return c
}

func (c *call) correlationID() string {
	if c.given != "" {
		return c.given
	}
	return c.id.String()
}

// origin is who makes the call and why, for the audit log.
func (c *call) origin(reason string) audit.Origin {
	return audit.Origin{Actor: audit.User(c.who.Prefix), CorrelationID: c.correlationID(), Reason: reason}
}

// tokenRule says what isToken asks for.
const tokenRule = "must be 1 to 255 characters of UTF-8 without control characters"

// isToken reports whether s is 1 to 255 characters of UTF-8 without control characters.
func isToken(s string) bool {
	if s == "" || len(s) > requests.KeyMax*utf8.UTFMax || !utf8.ValidString(s) || utf8.RuneCountInString(s) > requests.KeyMax {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}
