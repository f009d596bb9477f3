package tenants

import (
	"strings"
	"testing"
)

func TestNewSecretIsWellFormedAndUnlikeAnyOther(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		s := newSecret()
		if !WellFormed(s) {
			t.Fatalf("%q is not well-formed", s)
		}
		if len(s) != 52 || seen[s] {
			t.Fatalf("%q has %d characters or is a duplicate", s, len(s))
		}
		seen[s] = true
	}
}

func TestWellFormed(t *testing.T) {
	t.Parallel()
	const body = "hf_0000000000000000000000000000000000000000000"
	for name, c := range map[string]struct {
		key  string
		want bool
	}{
		"a fixed key":       {body + "4FomBV", true},
		"empty":             {"", false},
		"only the prefix":   {"hf_", false},
		"no checksum":       {body, false},
		"other checksum":    {body + "4FomBW", false},
		"other prefix":      {"hg" + body[2:] + "4FomBV", false},
		"trailing space":    {body + "4FomBV ", false},
		"outside base 62":   {strings.Replace(body, "0", "-", 1) + "4FomBV", false},
		"a NUL":             {strings.Replace(body, "0", "\x00", 1) + "4FomBV", false},
		"bytes beyond text": {strings.Replace(body, "0", "\xff", 1) + "4FomBV", false},
	} {
		if got := WellFormed(c.key); got != c.want {
			t.Errorf("%s: WellFormed(%q) = %v", name, c.key, got)
		}
	}
}

// A typing error in one character, or two swapped neighbours, are always
// detected.
func TestWellFormedNoticesTypingErrors(t *testing.T) {
	t.Parallel()
	key := newSecret()
	for i := range key {
		for _, d := range digits {
			typed := key[:i] + string(d) + key[i+1:]
			if typed != key && WellFormed(typed) {
				t.Errorf("%q is well-formed, like %q", typed, key)
			}
		}
		if i > 0 && key[i] != key[i-1] {
			typed := key[:i-1] + string(key[i]) + string(key[i-1]) + key[i+1:]
			if WellFormed(typed) {
				t.Errorf("%q is well-formed, like %q", typed, key)
			}
		}
	}
}

func FuzzWellFormed(f *testing.F) {
	f.Add("")
	f.Add(newSecret())
	f.Fuzz(func(t *testing.T, s string) {
		if WellFormed(s) && (len(s) != keyLength || checksum(s[:keyLength-checksumLength]) != s[keyLength-checksumLength:]) {
			t.Errorf("%q passes", s)
		}
	})
}

func TestRecentIsBoundedAndKeepsTheNewest(t *testing.T) {
	t.Parallel()
	const size = 10
	r := newRecent[answer](size)
	for i := range 1000 {
		r.put([32]byte{byte(i), byte(i >> 8)}, answer{})
		if n := len(r.new) + len(r.old); n > 2*size {
			t.Fatalf("%d answers are cached", n)
		}
	}
	for i := 1000 - size; i < 1000; i++ {
		if _, ok := r.get([32]byte{byte(i), byte(i >> 8)}); !ok {
			t.Errorf("answer %d is not cached", i)
		}
	}
}
