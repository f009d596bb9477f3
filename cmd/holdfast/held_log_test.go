package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestHeldLog(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{nil, errors.New("not as promised")} {
		var to bytes.Buffer
		log := &heldLog{to: &to}
		for i := range 2000 {
			fmt.Fprintf(log, "line %d %s\n", i, strings.Repeat("x", 100))
		}
		if to.Len() != 0 {
			t.Fatal("a line is written before the end")
		}
		log.end(failure)
		written := to.String()
		if failed := failure != nil; strings.HasPrefix(written, "line 0 ") != failed || len(written) > heldLogMax || failed && !strings.HasSuffix(written, "x\n") {
			t.Errorf("after %v it wrote %d bytes", failure, len(written))
		}
	}
}
