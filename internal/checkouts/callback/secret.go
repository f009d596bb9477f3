package callback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/google/uuid"
)

// Secret is a key that signs calls, in the form of Standard Webhooks: "whsec_"
// and 24 to 64 bytes in base 64.
//
// Only Plaintext returns it. If a secret, or a struct that contains one, is
// formatted, logged, marshalled or read by reflection, at most the prefix
// appears. The zero value is no secret.
type Secret struct {
	reveal func() []byte // nil for no secret; a function, of which reflection, and so fmt, sees only the address
}

const (
	secretPrefix = "whsec_"
	redactedText = secretPrefix + "…"
	// secretMin and secretMax are numbers of bytes.
	secretMin, secretMax = 24, 64
)

// ErrSecret means that a text is not a secret. The error contains nothing of
// the text.
var ErrSecret = errors.New("must be whsec_ and 24 to 64 bytes in base 64")

// ParseSecret reads a secret.
//
// Errors: ErrSecret.
func ParseSecret(text string) (Secret, error) {
	encoded, prefixed := strings.CutPrefix(text, secretPrefix)
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	// Decoding skips line breaks.
	if !prefixed || err != nil || len(key) < secretMin || len(key) > secretMax || strings.ContainsAny(encoded, "\r\n") {
		return Secret{}, ErrSecret
	}
	return secretOf(key), nil
}

func secretOf(key []byte) Secret { return Secret{reveal: func() []byte { return key }} }

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.reveal == nil }

// Plaintext is the secret in its text form, "" for none.
func (s Secret) Plaintext() string {
	if s.IsZero() {
		return ""
	}
	return secretPrefix + base64.StdEncoding.EncodeToString(s.reveal())
}

// ForTenant derives the secret of a tenant: the HMAC-SHA256, under the key of
// s, of the tenant's id in its text form. It is always the same, so it is not
// stored. A tenant that has its own secret cannot derive that of another one.
// s must not be zero.
func (s Secret) ForTenant(tenantID uuid.UUID) Secret {
	mac := hmac.New(sha256.New, s.reveal())
	mac.Write([]byte(tenantID.String()))
	return secretOf(mac.Sum(nil))
}

// sign returns the signature of a message, as the header webhook-signature has
// it. timestamp is in seconds since 1970.
func (s Secret) sign(id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, s.reveal())
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Format writes the prefix, for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redactedText) }

// LogValue is the prefix.
func (Secret) LogValue() slog.Value { return slog.StringValue(redactedText) }

// MarshalText returns the prefix.
func (Secret) MarshalText() ([]byte, error) { return []byte(redactedText), nil }
