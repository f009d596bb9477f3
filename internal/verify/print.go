package verify

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the report for people: a line for each check, and under one that is broken the sample.
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
		fmt.Fprintf(w, "        %s, the first %d:\n", c.rows(), len(c.Sample))
		for _, row := range c.Sample {
			fmt.Fprintf(w, "        %s\n", row)
		}
	}
	fmt.Fprintln(w, r.Summary())
}

// Summary is the report in one line.
func (r Report) Summary() string {
	var broken []string
	for _, c := range r.Checks {
		if c.Broken > 0 {
			broken = append(broken, fmt.Sprintf("%s (%s)", c.Name, c.rows()))
		}
	}
	if len(broken) == 0 {
		return fmt.Sprintf("All %d invariants hold.", len(r.Checks))
	}
	return fmt.Sprintf("%d of %d invariants are broken: %s", len(broken), len(r.Checks), strings.Join(broken, ", "))
}

// rows says how many rows are broken.
func (c Check) rows() string {
	switch c.Broken {
	case 1:
		return "1 row"
	case BrokenMax:
		return fmt.Sprintf("%d rows or more", c.Broken)
	default:
		return fmt.Sprintf("%d rows", c.Broken)
	}
}
