package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast/holdfast/cmd/internal/programtest"
	"github.com/holdfast/holdfast/internal/pgtest"
)

// guideCall is a call in a guide: hf, options of curl, a URL, and a body.
var guideCall = regexp.MustCompile(`^hf (?:-X ([A-Z]+) )?(?:-H '([^:']+): ([^']+)' )?"\$HOLDFAST_URL(/[^"]+)"(?: -d '([^']+)')?$`)

// guideFigure is what a comment before a call says of its answer.
var guideFigure = regexp.MustCompile(`\b(stock|reserved|available) (\d+)`)

// The calls of the guides work in their order, and a stock that is read is as the
// comment before the call says.
func TestGuideCalls(t *testing.T) {
	t.Parallel()
	for guide, want := range map[string]string{"README.md": "POST /v1/carts/cart-1/checkout", "docs/which.md": "POST /v1/carts/anns/checkout"} {
		t.Run(guide, func(t *testing.T) {
			t.Parallel()
			s := ready(t, programtest.Start(t, run, programtest.NewFixture(t).Env(), "run").Stdout)
			text, err := os.ReadFile("../../" + guide)
			pgtest.Must(t, err)
			var last, comment string
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSpace(line)
				if !strings.HasPrefix(line, "hf ") {
					comment = line
					continue
				}
				parts := guideCall.FindStringSubmatch(line)
				if parts == nil {
					t.Fatalf("this call is in a form that the test does not read: %s", line)
				}
				method, header, value, path, body := parts[1], parts[2], parts[3], parts[4], parts[5]
				switch {
				case method != "":
				case body != "":
					method = http.MethodPost
				default:
					method = http.MethodGet
				}
				r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
				pgtest.Must(t, err)
				if header != "" {
					r.Header.Set(header, value)
				}
				got := s.do(r, http.StatusOK)
				for _, figure := range guideFigure.FindAllStringSubmatch(comment, -1) {
					if method == http.MethodGet && fmt.Sprint(got[figure[1]]) != figure[2] {
						t.Errorf("%s: %s is %v, and the guide says %s", line, figure[1], got[figure[1]], figure[2])
					}
				}
				if strings.HasPrefix(path, "/v1/carts/") && strings.HasSuffix(path, "/items") && got["status"] != "done" {
					t.Errorf("%s: %v", line, got)
				}
				last = method + " " + path
			}
			if last != want {
				t.Errorf("the last call is %q, want %q", last, want)
			}
		})
	}
}
