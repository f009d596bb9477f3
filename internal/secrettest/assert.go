package secrettest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// partLength is the length in bytes of a part that counts as a leak.
const partLength = 12

// AssertAbsent fails the test for each secret of which the text contains a
// part: as it is, in another case, or as bytes in hexadecimal, decimal or base
// 64. A prefix of the secret up to its first underscore is not secret.
func AssertAbsent(t testing.TB, text string, secrets ...string) {
	t.Helper()
	text = strings.ToLower(text)
	for _, secret := range secrets {
		if prefix, after, marked := strings.Cut(secret, "_"); marked && len(prefix) < prefixMax {
			secret = after
		}
		if len(secret) < 2*partLength {
			t.Fatalf("too short for a secret: %d characters", len(secret))
		}
		for i := 0; i+partLength <= len(secret); i++ {
			if encoding, at := find(text, []byte(secret[i:i+partLength])); at >= 0 {
				t.Errorf("part of a secret was found, %s: …%s", encoding, text[max(at-100, 0):at])
				break
			}
		}
	}
}

const prefixMax = 8

// find returns the encoding in which the lower-case text contains the part, and
// the index, or -1 if it does not.
func find(text string, part []byte) (encoding string, at int) {
	for encoding, shown := range map[string]string{
		"as it is":                string(part),
		"hexadecimal":             hex.EncodeToString(part),
		"hexadecimal with spaces": fmt.Sprintf("% x", part),
		"in Go's notation":        strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", part), "[]byte{"), "}"),
		"decimal":                 strings.Trim(fmt.Sprint(part), "[]"), //nolint:staticcheck // this is how bytes are printed
		"in base 64":              base64.StdEncoding.EncodeToString(part),
	} {
		if at := strings.Index(text, strings.ToLower(shown)); at >= 0 {
			return encoding, at
		}
	}
	return "", -1
}
