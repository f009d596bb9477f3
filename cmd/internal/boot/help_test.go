package boot

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

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
