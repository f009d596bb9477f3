package boot

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/sethvargo/go-envconfig"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
		told string
	}{
		{nil, 0, ""},
		{errors.New("no"), 1, "x: no\n"},
		{fmt.Errorf("two\n  lines: %w", errors.New("no")), 1, "x: two; lines: no\n"},
		{&UsageError{"say what"}, 2, "x: say what\n"},
		{fmt.Errorf("wrapped: %w", &UsageError{"say what"}), 2, "x: wrapped: say what\n"},
		{ErrFailed, 1, ""},
	} {
		var stderr bytes.Buffer
		process := Process{Env: envconfig.MapLookuper(nil), Stderr: &stderr}
		if code := exitCode(t.Context(), "x", c.err, process); code != c.code || stderr.String() != c.told {
			t.Errorf("%v: code %d and %q, want %d and %q", c.err, code, &stderr, c.code, c.told)
		}
	}
}
