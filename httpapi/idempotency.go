package httpapi

import (
	"crypto/sha256"
	"net/http"
	"net/url"

	"github.com/holdfast/holdfast/inventory"
)

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
)

// idempotencyKey is the key that the call carries, "" if it carries none. One that can't be kept is an
// *inventory.InvalidError: taking such a call for one without a key would take the caller's safety away unseen.
func idempotencyKey(h http.Header) (string, error) {
	key, given, err := only(h, keyHeader)
	if err == nil && given && !isToken(key) {
		err = &inventory.InvalidError{Field: keyHeader, Message: tokenRule}
	}
	if err != nil {
		return "", err
	}
	return key, nil
}

// fingerprint tells a repetition of the call from another call with its key: the hash of method, path, query and body,
// each in a form that does not depend on how it was written.
func (c *call) fingerprint() [sha256.Size]byte {
	b := make([]byte, 0, len(c.r.URL.Path)+len(c.body)+64)
	b = append(b, c.r.Method...)
	b = append(b, 0)
	b = append(b, c.r.URL.Path...)
	b = append(b, 0)
	b = append(b, canonicalQuery(c.r.URL.RawQuery)...)
	b = append(b, 0)
	return sha256.Sum256(append(b, c.body...))
}

func canonicalQuery(query string) string {
	if query == "" {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil { // what can't be read is no parameter, but it is a difference
		return query
	}
	return values.Encode()
}
