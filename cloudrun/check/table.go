package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// operatingPage shows the alerts between two marks, if it is there and has the marks.
const (
	operatingPage = "docs/operating.md"
	tableBegin    = "<!-- cloudrun/alerts.yaml: make generate writes this -->\n"
	tableEnd      = "<!-- end of cloudrun/alerts.yaml -->\n"
)

// markdown is the table as docs/operating.md shows it.
func (t *alertTable) markdown() string {
	var b strings.Builder
	b.WriteString("| alert | home | severity | fires when | schedule (UTC) | window | playbook |\n|---|---|---|---|---|---|---|\n")
	for _, a := range t.Alerts {
		schedule, window := "", cmp.Or(a.Window, a.For)
		if a.Schedule != "" {
			schedule = "`" + a.Schedule + "`"
		}
		if window == "0s" {
			window = ""
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | [%s](../cloudrun/playbooks/%s) |\n", a.Name, strings.Join(a.Homes, ", "),
			strings.ToLower(a.Severity), a.Summary, schedule, window, strings.TrimSuffix(a.Playbook, ".md"), a.Playbook)
	}
	return b.String()
}

// checkTable holds what docs/operating.md shows between the marks against alerts.yaml.
func (t *alertTable) checkTable(root fs.FS, r *report) error {
	text, err := fs.ReadFile(root, operatingPage)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	before, after, found := strings.Cut(string(text), tableBegin)
	if !found {
		return nil
	}
	shown, _, found := strings.Cut(after, tableEnd)
	if !found || shown != t.markdown() {
		r.add(place{operatingPage, 1 + strings.Count(before, "\n")}, "the table is not that of %s: run make generate", alertsFile)
	}
	return nil
}

// withTable is the page with the table of alerts.yaml between its marks.
func (t *alertTable) withTable(page string) (string, error) {
	before, after, found := strings.Cut(page, tableBegin)
	_, rest, ended := strings.Cut(after, tableEnd)
	if !found || !ended {
		return "", fmt.Errorf("%s has no table to write: it needs the lines %s and %s", operatingPage, strings.TrimSpace(tableBegin), strings.TrimSpace(tableEnd))
	}
	return before + tableBegin + t.markdown() + tableEnd + rest, nil
}
