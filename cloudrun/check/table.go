package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"strings"
)

// operatingPage shows the tables of alerts.yaml and metrics.yaml, each between two marks.
const operatingPage = "docs/operating.md"

// beginMark is the line above the table of a file.
func beginMark(file string) string { return "<!-- " + file + ": make generate writes this -->\n" }

// endMark is the line below it.
func endMark(file string) string { return "<!-- end of " + file + " -->\n" }

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

// markdown is the table as docs/operating.md shows it, without the metrics of Cloud Run and Cloud SQL.
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

// checkShown compares the table of a file in docs/operating.md with the file's.
func checkShown(root fs.FS, file, table string, r *report) error {
	text, err := fs.ReadFile(root, operatingPage)
	if err != nil {
		return err
	}
	before, after, found := strings.Cut(string(text), beginMark(file))
	if !found {
		r.add(place{operatingPage, 1}, "the table of %s is missing: it needs the lines %s and %s", file, strings.TrimSpace(beginMark(file)), strings.TrimSpace(endMark(file)))
		return nil
	}
	shown, _, found := strings.Cut(after, endMark(file))
	if !found || shown != table {
		r.add(place{operatingPage, 1 + strings.Count(before, "\n")}, "the table is not that of %s: run make generate", file)
	}
	return nil
}

// withShown is the page with the table of a file between its marks.
func withShown(page, file, table string) (string, error) {
	before, after, found := strings.Cut(page, beginMark(file))
	_, rest, ended := strings.Cut(after, endMark(file))
	if !found || !ended {
		return "", fmt.Errorf("%s has no place for the table of %s: it needs the lines %s and %s", operatingPage, file, strings.TrimSpace(beginMark(file)), strings.TrimSpace(endMark(file)))
	}
	return before + beginMark(file) + table + endMark(file) + rest, nil
}
