package verify

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Print writes the report as text: one line per check and per note, the sample
// under each note and each broken check, and the [Report.Summary]. Errors of w
// are ignored.
func (r Report) Print(w io.Writer) {
	broken, width := 0, 0
	for _, c := range r.Checks {
		width = max(width, len(c.Name))
		if c.Broken > 0 {
			broken++
		}
	}
	for _, c := range r.Checks {
		state := "ok    "
		if c.Broken > 0 {
			state = "BROKEN"
		}
		fmt.Fprintf(w, "%s  %-*s  %s\n", state, width, c.Name, c.Meaning)
		if c.Broken == 0 {
			continue
		}
		printRows(w, c.Broken, c.Sample)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note    %-*s  %s\n", width, n.Name, n.Meaning)
		printRows(w, n.Rows, n.Sample)
	}
	fmt.Fprintln(w, r.Summary())
}

func printRows(w io.Writer, n int64, sample []json.RawMessage) {
	fmt.Fprintf(w, "        %s, the first %d:\n", rows(n), len(sample))
	for _, row := range sample {
		fmt.Fprintf(w, "        %s\n", row)
	}
}

// Summary returns the report in one line, without a newline: the number of
// invariants, and the names of those that are broken.
func (r Report) Summary() string {
	var broken []string
	for _, c := range r.Checks {
		if c.Broken > 0 {
			broken = append(broken, fmt.Sprintf("%s (%s)", c.Name, rows(c.Broken)))
		}
	}
	if len(broken) == 0 {
		return fmt.Sprintf("All %d invariants hold.", len(r.Checks))
	}
	return fmt.Sprintf("%d of %d invariants are broken: %s", len(broken), len(r.Checks), strings.Join(broken, ", "))
}

// rows formats a number of rows that was counted up to brokenMax.
func rows(n int64) string {
	switch n {
	case 1:
		return "1 row"
	case brokenMax:
		return fmt.Sprintf("%d rows or more", n)
	default:
		return fmt.Sprintf("%d rows", n)
	}
}
