package main

import (
	"cmp"
	"fmt"
	"slices"
)

// place is a line of a file; line 0 is the whole file.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, max(p.line, 1)) }

// finding is one error in the checked files.
type finding struct {
	place
	text string
}

func (f finding) String() string { return f.place.String() + ": " + f.text }

// report collects findings.
type report struct{ findings []finding }

func (r *report) add(at place, format string, args ...any) {
	r.findings = append(r.findings, finding{at, fmt.Sprintf(format, args...)})
}

// sorted returns each finding once, in the order of file and line. Duplicates
// occur because the homes share most of their Terraform.
func (r *report) sorted() []finding {
	slices.SortFunc(r.findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.text, b.text))
	})
	return slices.Compact(r.findings)
}
