package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/holdfast/holdfast/internal/inventory"
)

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
)

// idempotencyKey returns the key of the request, "" if it has none. A key that
// can't be stored is an *inventory.InvalidError: to ignore it would take the
// caller's protection away unnoticed.
func idempotencyKey(h http.Header) (string, error) {
	key, given, err := singleHeader(h, keyHeader)
	if err == nil && given && !isToken(key) {
		err = &inventory.InvalidError{Field: keyHeader, Message: tokenRule}
	}
	if err != nil {
		return "", err
	}
	return key, nil
}

// fingerprint returns a hash of method, path, query and body, each in a form
// that does not depend on how the caller wrote it. It distinguishes a
// repetition from another request with the same key.
func (req *request) fingerprint() [sha256.Size]byte {
	path := fingerprintPath(req.http.URL)
	b := make([]byte, 0, len(path)+len(req.body)+64)
	b = append(b, req.http.Method...)
	b = append(b, 0)
	b = append(b, path...)
	b = append(b, 0)
	b = append(b, canonicalQuery(req.http.URL.RawQuery)...)
	b = append(b, 0)
	return sha256.Sum256(append(b, req.body...))
}

// fingerprintPath returns the path with each segment decoded. A segment with
// other characters than ASCII letters, digits, '-', '_' and '.' is replaced by
// "~" and its base64 (RFC 4648, section 5, without padding).
//
// Stored fingerprints have this form. With another one, repetitions of earlier
// requests would be refused as tenants.ErrKeyReused.
func fingerprintPath(u *url.URL) string {
	segments := strings.Split(u.EscapedPath(), "/")
	for i, segment := range segments {
		decoded, err := url.PathUnescape(segment)
		if err != nil { // EscapedPath can be decoded
			decoded = segment
		}
		if !isUnreserved(decoded) || strings.Contains(decoded, "~") {
			decoded = "~" + base64.RawURLEncoding.EncodeToString([]byte(decoded))
		}
		segments[i] = decoded
	}
	return strings.Join(segments, "/")
}

func canonicalQuery(query string) string {
	if query == "" {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil { // a query that can't be decoded still makes a difference
		return query
	}
	return values.Encode()
}
