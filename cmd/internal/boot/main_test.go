package boot

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/sethvargo/go-envconfig"
)

func TestExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err    error
		code   int
		logged string
	}{
		{nil, 0, ""},
		{errors.New("no"), 1, "no"},
		{fmt.Errorf("two\n  lines: %w", errors.New("no")), 1, "two; lines: no"},
		{&UsageError{"which one"}, 2, "which one"},
		{fmt.Errorf("wrapped: %w", &UsageError{"which one"}), 2, "wrapped: which one"},
		{ErrFailed, 1, ""},
	} {
		for _, of := range []struct{ program, format, want string }{
			{"holdfast", "", "holdfast: %s\n"},
			{"holdfast", "json", `{"level":"ERROR","msg":"%s","program":"holdfast"}` + "\n"},
			{"api", "", `{"level":"ERROR","msg":"%s","program":"api"}` + "\n"},
			{"api", "loud", `{"level":"ERROR","msg":"%s","program":"api"}` + "\n"}, // an invalid value
			{"api", "cloud", `{"severity":"ERROR","message":"%s","program":"api"}` + "\n"},
		} {
			want := ""
			if c.logged != "" {
				want = fmt.Sprintf(of.want, c.logged)
			}
			var stderr bytes.Buffer
			process := Process{Env: envconfig.MapLookuper(map[string]string{"LOG_FORMAT": of.format}), Stderr: &stderr}
			code := exitCode(t.Context(), of.program, c.err, process)
			if got := logTime.ReplaceAllString(stderr.String(), ""); code != c.code || got != want {
				t.Errorf("%s, LOG_FORMAT %q, %v: code %d and %q, want %d and %q", of.program, of.format, c.err, code, got, c.code, want)
			}
		}
	}
}

// logTime is the time of a line of the log.
var logTime = regexp.MustCompile(`"time":"[^"]+",`)

func TestOnlyHelp(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args  string
		asked bool
		wrong bool
	}{
		{"", false, false},
		{"--help", true, false},
		{"-help", true, false},
		{"-h", true, false},
		{"help", true, false},
		{"--help now", false, true},
		{"--port 80", false, true},
	} {
		var stdout bytes.Buffer
		asked, err := OnlyHelp(Process{Args: strings.Fields(test.args), Stdout: &stdout}, "how to\n")
		var usage *UsageError
		if asked != test.asked || errors.As(err, &usage) != test.wrong || (stdout.String() == "how to\n") != test.asked {
			t.Errorf("%q: asked %t, error %v, printed %q; want asked %t, a usage error %t", test.args, asked, err, &stdout, test.asked, test.wrong)
		}
	}
}
