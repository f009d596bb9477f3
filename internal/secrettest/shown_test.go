package secrettest

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
)

const secret = "key_aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0cD-fG_iJ-lM"

// recorder is a testing.TB that records a failure.
type recorder struct {
	testing.TB
	failed int
}

func (*recorder) Helper()                 {}
func (r *recorder) Errorf(string, ...any) { r.failed++ }

func finds(text string) bool {
	r := &recorder{}
	AssertAbsent(r, text, secret)
	return r.failed > 0
}

func TestAssertAbsent(t *testing.T) {
	t.Parallel()
	bare := strings.TrimPrefix(secret, "key_")
	for _, text := range []string{
		secret, "x" + bare[2:30], strings.ToUpper(bare), hex.EncodeToString([]byte(secret)), fmt.Sprintf("%v", []byte(secret)), fmt.Sprintf("% x", bare),
		fmt.Sprintf("%#v", []byte(bare)), base64.StdEncoding.EncodeToString([]byte("." + secret)), Shown([]byte(secret)),
	} {
		if !finds(text) {
			t.Errorf("not found in %s", text)
		}
	}
	for _, text := range []string{"", "key_", bare[:11], "key_…"} {
		if finds(text) {
			t.Errorf("found in %q", text)
		}
	}
}

// text formats itself, but is still a string.
type text string

func (text) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "…") }

func (text) MarshalText() ([]byte, error) { return []byte("…"), nil }

// A text is found in every kind of value that contains it, except a function.
func TestShown(t *testing.T) {
	t.Parallel()
	kept := secret
	for name, value := range map[string]any{
		"a field": struct{ hidden text }{secret}, "a pointer": struct{ hidden *string }{&kept}, "a map's key": map[text]int{secret: 1},
		"a map's value": map[int]text{1: secret}, "bytes": struct{ hidden []byte }{[]byte(secret)}, "inside": []any{struct{ hidden any }{text(secret)}},
	} {
		if !finds(Shown(value)) {
			t.Errorf("%s hides it", name)
		}
		if !finds(Diffed(value)) {
			t.Errorf("%s hides it from a diff", name)
		}
	}
	if hidden := (struct{ reveal func() string }{func() string { return kept }}); finds(Shown(hidden)) || finds(Diffed(hidden)) {
		t.Error("a function shows it")
	}
}
