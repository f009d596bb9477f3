package secrettest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// partLength is how much of a secret gives it away.
const partLength = 12

// Look fails the test for each secret of which the text shows a part, as it is, in another case, or as bytes are shown:
// hexadecimal, decimal, base 64. A mark at the beginning of a secret, up to its first underscore, is no part of it.
func Look(t testing.TB, text string, secrets ...string) {
	t.Helper()
	text = strings.ToLower(text)
	for _, secret := range secrets {
		if mark, after, marked := strings.Cut(secret, "_"); marked && len(mark) < markMax {
			secret = after
		}
		if len(secret) < 2*partLength {
			t.Fatalf("too short for a secret: %d characters", len(secret))
		}
		for i := 0; i+partLength <= len(secret); i++ {
			if encoding, at := find(text, []byte(secret[i:i+partLength])); at >= 0 {
				t.Errorf("part of a secret was seen, %s: …%s", encoding, text[max(at-100, 0):at])
				break
			}
		}
	}
}

const markMax = 8

// find finds how the lower-case text shows the part, and where; -1 if it does not.
func find(text string, part []byte) (encoding string, at int) {
	for encoding, shown := range map[string]string{
		"as it is":                string(part),
		"hexadecimal":             hex.EncodeToString(part),
		"hexadecimal with spaces": fmt.Sprintf("% x", part),
		"in Go's notation":        strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", part), "[]byte{"), "}"),
		"decimal":                 strings.Trim(fmt.Sprint(part), "[]"), //nolint:staticcheck // as bytes are printed
		"in base 64":              base64.StdEncoding.EncodeToString(part),
	} {
		if at := strings.Index(text, strings.ToLower(shown)); at >= 0 {
			return encoding, at
		}
	}
	return "", -1
}
