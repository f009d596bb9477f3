package main

import (
	_ "embed"
	"fmt"
	"runtime"
	"strings"
	"text/template"
	"time"
)

//go:embed page.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// line is a measure as the page shows it.
type line struct {
	Measure
	What, Target, Value, Result, Ours, Other, Spread, Note string
}

// page is the page of figures.
func page(o options, measures []Measure, a about) (string, error) {
	lines := make([]line, len(measures))
	for i := range measures {
		m := &measures[i]
		value := figure(m.Value)
		if m.Unit != "ratio" {
			value += " " + m.Unit
		}
		result := m.result()
		if result != "" && result != "pass" {
			result = "**" + result + "**"
		}
		lines[i] = line{
			Measure: *m, What: targets[m.Measure].what, Target: m.wanted(), Value: value, Result: result,
			Ours: figure(m.Ours), Other: figure(m.Other), Spread: fmt.Sprintf("%.0f %%", m.Spread*100), Note: m.Note,
		}
	}
	var b strings.Builder
	err := pageTemplate.Execute(&b, map[string]any{
		"CPU": a.cpu, "Cores": a.cores, "OS": runtime.GOOS + "/" + runtime.GOARCH, "Go": a.goVersion, "Postgres": a.postgres,
		"Redis": a.redis, "Settings": a.settings, "Reps": o.reps, "Seconds": o.long.Seconds(), "At": a.at.Format(time.DateOnly),
		"Steal": a.host.steal(), "Fsync": a.host.fsync(), "Raw": a.host.raw(),
		"Rows": group(fmt.Sprint(o.rows)), "Measures": lines,
	})
	return b.String(), err
}
