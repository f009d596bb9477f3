package invalid_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast/holdfast/internal/invalid"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	if err := invalid.Check("name", "a", 1); err != nil {
		t.Errorf("a valid text: %v", err)
	}
	err := invalid.Check("name", "ab", 1)
	wrong, ok := errors.AsType[*invalid.Error](err)
	if !ok || err.Error() != "name: must be at most 1 characters" {
		t.Fatalf("%v", err)
	}
	if diff := cmp.Diff(invalid.Error{Field: "name", Message: "must be at most 1 characters"}, *wrong); diff != "" {
		t.Error(diff)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a": "", "äöü": "", strings.Repeat("ä", 4): "",
		"": "must not be empty", "a\xff": "must be valid UTF-8",
		"äöüßa": "must be at most 4 characters",
		"a\nb":  "must not contain control characters", "\x00": "must not contain control characters",
	} {
		if got := invalid.Text(text, 4); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
