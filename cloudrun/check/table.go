package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"strings"
)

// operatingPage has the tables of alerts.yaml and metrics.yaml, each between
// two marks.
const operatingPage = "docs/operating.md"

// beginMarker is the line above the table of a file.
func beginMarker(file string) string { return "<!-- " + file + ": make generate writes this -->\n" }

// endMarker is the line below it.
func endMarker(file string) string { return "<!-- end of " + file + " -->\n" }

// markdown returns the table for docs/operating.md.
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

// markdown returns the table for docs/operating.md, without the metrics of
// Cloud Run and Cloud SQL.
func (t *metricTable) markdown() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, m := range t.Metrics {
		if strings.Contains(m.Name, ":") {
			continue
		}
		labels := ""
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, m.Meaning)
	}
	return b.String()
}

// checkTable compares the table in docs/operating.md with the one of the file.
func checkTable(root fs.FS, file, table string, r *report) error {
	text, err := fs.ReadFile(root, operatingPage)
	if err != nil {
		return err
	}
	before, after, found := strings.Cut(string(text), beginMarker(file))
	if !found {
		r.add(place{operatingPage, 1}, "the table of %s is missing: it needs the lines %s and %s", file, strings.TrimSpace(beginMarker(file)), strings.TrimSpace(endMarker(file)))
		return nil
	}
	shown, _, found := strings.Cut(after, endMarker(file))
	if !found || shown != table {
		r.add(place{operatingPage, 1 + strings.Count(before, "\n")}, "the table differs from %s: run make generate", file)
	}
	return nil
}

// withTable returns the page with the table of a file between its marks.
func withTable(page, file, table string) (string, error) {
	before, after, found := strings.Cut(page, beginMarker(file))
	_, rest, ended := strings.Cut(after, endMarker(file))
	if !found || !ended {
		return "", fmt.Errorf("%s has no place for the table of %s: it needs the lines %s and %s", operatingPage, file, strings.TrimSpace(beginMarker(file)), strings.TrimSpace(endMarker(file)))
	}
	return before + beginMarker(file) + table + endMarker(file) + rest, nil
}
