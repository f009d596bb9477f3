package main

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

const (
	alertsFile  = "cloudrun/alerts.yaml"
	metricsFile = "cloudrun/metrics.yaml"
)

// alertTable is alerts.yaml, the only table of schedules and alerts.
type alertTable struct {
	Alerts []*alert `json:"alerts"`
}

type alert struct {
	Name     string   `json:"name"`
	Homes    []string `json:"homes"`
	Job      string   `json:"job"`
	Schedule string   `json:"schedule"`
	Missed   int64    `json:"missed"`
	Slack    string   `json:"slack"`
	Window   string   `json:"window"`
	Query    string   `json:"query"`
	For      string   `json:"for"`
	Severity string   `json:"severity"`
	Summary  string   `json:"summary"`
	Playbook string   `json:"playbook"`
}

// metricTable is metrics.yaml, which lists every metric that a query may name.
type metricTable struct {
	Metrics []*metric `json:"metrics"`
	byName  map[string]*metric
}

type metric struct {
	Name       string   `json:"name"`
	Instrument string   `json:"instrument"`
	Unit       string   `json:"unit"`
	Type       string   `json:"type"`
	Labels     []string `json:"labels"`
	Meaning    string   `json:"meaning"`
}

// checkMonitoring compares the metrics with the code, the alerts with the
// metrics, schedules and playbooks, and the dashboards with the metrics and
// each other.
func checkMonitoring(root fs.FS, code *code, manifests []*unit, homes []*home, r *report) error {
	metrics, err := readMetrics(root, code, r)
	if err != nil {
		return err
	}
	var table alertTable
	d, ok, err := decodeStrict(root, alertsFile, &table, r)
	if err != nil {
		return err
	}
	if ok {
		w := monitoring{root, d, metrics, manifests, homes, r}
		w.checkAlerts(table.Alerts)
		w.checkJobSchedules(table.Alerts)
		w.checkPlaybooks(table.Alerts)
		if err := checkTable(root, alertsFile, table.markdown(), r); err != nil {
			return err
		}
	}
	if len(metrics.Metrics) > 0 { // else the error in metrics.yaml is a separate finding
		if err := checkTable(root, metricsFile, metrics.markdown(), r); err != nil {
			return err
		}
	}
	return checkDashboards(root, metrics, r)
}

// readMetrics reads metrics.yaml and compares it with the instruments of the
// code.
func readMetrics(root fs.FS, code *code, r *report) (*metricTable, error) {
	t := &metricTable{byName: map[string]*metric{}}
	d, ok, err := decodeStrict(root, metricsFile, t, r)
	if !ok || err != nil {
		return t, err
	}
	instruments := map[string]bool{}
	for i, m := range t.Metrics {
		at := d.at("metrics[" + strconv.Itoa(i) + "].name")
		if t.byName[m.Name] != nil {
			r.add(at, "the metric %s occurs twice", m.Name)
		}
		t.byName[m.Name] = m
		if !slices.Contains([]string{"counter", "gauge", "histogram"}, m.Type) {
			r.add(at, "the type of %s must be counter, gauge or histogram, not %q", m.Name, m.Type)
		}
		if m.Meaning == "" {
			r.add(at, "the metric %s has no meaning", m.Name)
		}
		for k, label := range m.Labels {
			if slices.Contains(commonLabels, label) {
				r.add(d.at(fmt.Sprintf("metrics[%d].labels[%d]", i, k)), "%s has a label %s, which every series has with another meaning", m.Name, label)
			}
		}
		if m.Instrument == "" {
			continue
		}
		instruments[m.Instrument] = true
		if want := m.exported(); m.Name != want {
			r.add(at, "the instrument %s is exported as %s, not as %s", m.Instrument, want, m.Name)
		}
		made, found := code.instruments[m.Instrument]
		switch {
		case !found:
			r.add(at, "no code makes the instrument %s", m.Instrument)
		case made.kind != m.Type:
			r.add(at, "the instrument %s is a %s in the code, not a %s", m.Instrument, made.kind, m.Type)
		case made.unit != m.Unit:
			r.add(at, "the unit of the instrument %s is %q in the code, not %q", m.Instrument, made.unit, m.Unit)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(code.instruments)) {
		if !instruments[name] {
			r.add(place{metricsFile, 1}, "the instrument %s of the code is not in the table", name)
		}
	}
	return t, nil
}

// exported is the name in Prometheus: dots become underscores, and the unit and
// a counter's _total are appended.
func (m *metric) exported() string {
	name := strings.ReplaceAll(m.Instrument, ".", "_")
	if m.Unit == "s" {
		name += "_seconds"
	}
	if m.Type == "counter" {
		name += "_total"
	}
	return name
}

type monitoring struct {
	root      fs.FS
	d         *document
	metrics   *metricTable
	manifests []*unit
	homes     []*home
	r         *report
}

// durationForm is the form of durations that both Terraform's provider and
// PromQL accept.
var durationForm = regexp.MustCompile(`^\d+s$`)

func (w monitoring) checkAlerts(alerts []*alert) {
	names := map[string]bool{}
	for i, a := range alerts {
		at := func(name string) place { return w.d.at("alerts[" + strconv.Itoa(i) + "]." + name) }
		if a.Name == "" || names[a.Name] {
			w.r.add(at("name"), "the name of the alert %q is missing or not unique", a.Name)
		}
		names[a.Name] = true
		if !slices.Contains([]string{"CRITICAL", "ERROR", "WARNING"}, a.Severity) {
			w.r.add(at("severity"), "the severity of %s must be CRITICAL, ERROR or WARNING, not %q", a.Name, a.Severity)
		}
		for _, home := range a.Homes {
			if home != "pool" && home != "job" {
				w.r.add(at("homes"), "a home is pool or job, not %q", home)
			}
		}
		if len(a.Homes) == 0 {
			w.r.add(at("name"), "%s has no home", a.Name)
		}
		if !durationForm.MatchString(a.For) {
			w.r.add(at("for"), "for must be seconds, such as 300s, not %q", a.For)
		}
		if a.Summary == "" {
			w.r.add(at("name"), "%s has no summary", a.Name)
		}
		if a.Playbook == "" {
			w.r.add(at("name"), "%s has no playbook", a.Name)
		} else if text, err := fs.ReadFile(w.root, "cloudrun/playbooks/"+a.Playbook); err != nil {
			w.r.add(at("playbook"), "there is no playbook cloudrun/playbooks/%s", a.Playbook)
		} else if !strings.Contains(string(text), "`"+a.Name+"`") {
			w.r.add(at("playbook"), "the playbook %s does not mention `%s`", a.Playbook, a.Name)
		}
		checkQuery(a.Query, w.metrics, at("query"), w.r)
		w.checkWindow(a, at)
		w.checkThreshold(a, at)
	}
}

// checkWindow compares the window of an alert on a job with its schedule, and
// the query with the window.
func (w monitoring) checkWindow(a *alert, at func(string) place) {
	if a.Schedule == "" {
		if a.Job != "" || a.Window != "" || a.Missed != 0 || a.Slack != "" {
			w.r.add(at("name"), "%s has a job, a window, missed or slack, but no schedule", a.Name)
		}
		return
	}
	interval, err := longestInterval(a.Schedule)
	if err != nil {
		w.r.add(at("schedule"), "the schedule %q: %v", a.Schedule, err)
		return
	}
	slack, err := time.ParseDuration(a.Slack)
	if err != nil || slack <= 0 {
		w.r.add(at("slack"), "the slack of %s must be a duration above 0, not %q", a.Name, a.Slack)
		return
	}
	window, err := time.ParseDuration(a.Window)
	switch want := time.Duration(a.Missed)*interval + slack; {
	case err != nil:
		w.r.add(at("window"), "the window of %s must be a duration, not %q", a.Name, a.Window)
	case a.Missed < 2:
		w.r.add(at("missed"), "missed must be 2 or more: one late execution must not fire an alert")
	case window != want:
		w.r.add(at("window"), "the window of %s must be %d × %s + %s = %s, not %s", a.Name, a.Missed, interval, slack, want, a.Window)
	case !strings.Contains(a.Query, "["+a.Window+"]"):
		w.r.add(at("query"), "the query of %s does not have the range of its window, [%s]", a.Name, a.Window)
	case !strings.Contains(a.Query, `job_name="holdfast-`+a.Job+`"`):
		w.r.add(at("query"), "the query of %s does not select its job, holdfast-%s", a.Name, a.Job)
	}
}

// longestInterval returns the longest time between two runs of a schedule
// within two days. For a schedule that runs less often than daily it returns a
// longer time, which is found too.
func longestInterval(schedule string) (time.Duration, error) {
	s, err := cron.ParseStandard(schedule)
	if err != nil {
		return 0, err
	}
	longest, last := time.Duration(0), s.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for end := last.AddDate(0, 0, 2); last.Before(end); {
		next := s.Next(last)
		longest, last = max(longest, next.Sub(last)), next
	}
	return longest, nil
}

// connectionsShare is the share of max_connections, in percent, at which the
// alert connections-many fires.
const connectionsShare = 80

// checkThreshold compares the one threshold that depends on a variable of
// Terraform with that variable.
func (w monitoring) checkThreshold(a *alert, at func(string) place) {
	if a.Name != "connections-many" || len(w.homes) == 0 {
		return
	}
	most, known := text(w.homes[0].variables["max_connections"])
	n, err := strconv.Atoi(most)
	if !known || err != nil {
		return
	}
	if want := "> " + strconv.Itoa(n*connectionsShare/100); !strings.HasSuffix(a.Query, want) {
		w.r.add(at("query"), "the query of %s must end with %q, %d %% of max_connections in cloudrun/terraform/variables.tf", a.Name, want, connectionsShare)
	}
}

// checkJobSchedules reports a schedule without a job, a job without a schedule,
// and a job with two schedules in a home.
func (w monitoring) checkJobSchedules(alerts []*alert) {
	for _, home := range w.homes {
		scheduled := map[string]bool{}
		for i, a := range alerts {
			if a.Schedule == "" || !slices.Contains(a.Homes, home.name) {
				continue
			}
			at := w.d.at("alerts[" + strconv.Itoa(i) + "].job")
			if scheduled[a.Job] {
				w.r.add(at, "the job %s has two schedules in the home %s", a.Job, home.name)
			}
			scheduled[a.Job] = true
			if !slices.ContainsFunc(w.manifests, func(u *unit) bool { return u.kind == "Job" && u.name == a.Job }) {
				w.r.add(at, "the home %s has no job %s in cloudrun/yaml", home.name, a.Job)
			}
		}
		if home.name != "job" { // a worker pool does some of the passes
			continue
		}
		for _, u := range w.manifests {
			if u.kind == "Job" && u.name != "migrate" && !scheduled[u.name] {
				w.r.add(u.place, "the job %s has no schedule in %s for the home %s", u.name, alertsFile, home.name)
			}
		}
	}
}

// playbookMax is the largest size of an alert's documentation, in bytes.
const playbookMax = 8000

// checkPlaybooks reports playbooks that no alert names, and those that are too
// long for an alert.
func (w monitoring) checkPlaybooks(alerts []*alert) {
	files, err := fs.Glob(w.root, "cloudrun/playbooks/*.md")
	if err != nil { // the pattern is a constant
		return
	}
	for _, file := range files {
		if !slices.ContainsFunc(alerts, func(a *alert) bool { return a.Playbook == path.Base(file) }) {
			w.r.add(place{file, 1}, "no alert of %s names this playbook", alertsFile)
		}
		if text, err := fs.ReadFile(w.root, file); err == nil && len(text) > playbookMax {
			w.r.add(place{file, 1}, "it has %d bytes, and an alert can have %d", len(text), playbookMax)
		}
	}
}
