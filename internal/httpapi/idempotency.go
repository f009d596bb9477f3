package httpapi

import (
	"net/http"

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
