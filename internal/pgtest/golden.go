package pgtest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Golden compares the JSON of an audit record with the golden file of that name
// in the package's testdata. Values that differ between runs are replaced by
// numbers. If update is set, it writes the file first.
func Golden(t testing.TB, name string, record any, update bool) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden.json")
	raw, err := json.Marshal(record)
	Must(t, err)
	var b bytes.Buffer
	Must(t, json.Indent(&b, raw, "", "  "))
	b.WriteByte('\n')
	got := numbered(b.String())
	if update {
		Must(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	Must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-golden +got):\n%s", file, diff)
	}
}

var (
	timeForm  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	auditForm = regexp.MustCompile(`"audit_id": \d+`)
)

// numbered replaces the times by "time 1", "time 2" …, and the row's id by one
// number.
func numbered(text string) string {
	var seen []string
	text = timeForm.ReplaceAllStringFunc(text, func(found string) string {
		if !slices.Contains(seen, found) {
			seen = append(seen, found)
		}
		return "time " + strconv.Itoa(slices.Index(seen, found)+1)
	})
	return auditForm.ReplaceAllString(text, `"audit_id": 1`)
}
