package main

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// rare are series in queries that the all-in-one of this test does not have,
// with the reason. The documentation must list their values.
var rare = map[string]string{
	`holdfast_admission_refusals_total{reason="timeout"}`: "a call times out in the admission queue, which needs a database that is silent for seconds",
}

// Every query of the alerts and dashboards for metrics of the programs matches
// series, with its labels and values, of an all-in-one that has done everything
// once.
func TestQueries(t *testing.T) {
	queries := ownQueries(t)
	s := busyShop(t)
	var scraped series
	var missing []string
	until(t, "the queries match series", func() bool {
		scraped, missing = s.scrape(), nil
		for _, q := range queries {
			for _, m := range scraped.unmatched(t, q.text) {
				missing = append(missing, fmt.Sprintf("%s: %s, in %s", q.place, m, q.text))
			}
		}
		return len(missing) == 0
	})
	for _, m := range missing {
		t.Error(m)
	}
	note("%d queries, matched against %d series", len(queries), len(scraped))
	scraped.checkTable(t)
	scraped.checkRare(t)
	for query, want := range map[string]string{
		`max by (lane) (holdfast_lanes_depth)`:                                              "holdfast_lanes_depth",
		`max by (tenant) (holdfast_lane_depth)`:                                             "by the label tenant",
		`rate(holdfast_verb_duration_seconds_bucket{verb="admission.admitted"}[5m])`:        `verb="admission.admitted"`,
		`rate(holdfast_verb_duration_seconds_total{verb="admission.admit"}[5m])`:            "holdfast_verb_duration_seconds_total",
		`rate(holdfast_admission_refusals_total{whose="all",reason=~"depth|unknown"}[5m])`:  `reason="unknown"`,
		`rate(holdfast_admission_refusals_total{whose="tenant",reason="locked"}[5m]) > 1`:   `reason="locked"`,
		`sum by (lane, le) (rate(holdfast_decision_latency_seconds_count[5m]))`:             "by the label le",
		`sum by (lane) (holdfast_lane_depth) / sum by (lane) (holdfast_lane_depth_total)`:   "holdfast_lane_depth_total",
		`holdfast_lane_sequence_behind_total unless holdfast_lane_sequence_ahead_total > 0`: "holdfast_lane_sequence_ahead_total",
	} {
		if found := strings.Join(scraped.unmatched(t, query), "; "); !strings.Contains(found, want) {
			t.Errorf("%s: found %q to be missing, want %q", query, found, want)
		}
	}
}

// asked is a query and its place.
type asked struct {
	place
	text string
}

// foreign are metrics of Cloud Run and Cloud SQL.
const foreign = "_googleapis_com:"

// ownQueries returns the queries of the alerts and dashboards for metrics of
// the programs.
func ownQueries(t *testing.T) (all []asked) {
	t.Helper()
	root, r := os.DirFS(repository), &report{}
	var table alertTable
	d, _, err := decodeStrict(root, alertsFile, &table, r)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range table.Alerts {
		all = append(all, asked{d.at(fmt.Sprintf("alerts[%d].query", i)), a.Query})
	}
	for file, read := range map[string]func([]byte, *report) map[string][]string{cloudBoard: cloudQueries, grafanaBoard: grafanaQueries} {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, queries := range read(text, r) {
			for _, q := range queries {
				all = append(all, asked{place{file, lineOf(text, q)}, q})
			}
		}
	}
	if len(r.findings) > 0 {
		t.Fatalf("the queries cannot be read:\n%s", lines(r.findings))
	}
	return slices.DeleteFunc(all, func(q asked) bool { return len(selectors(parse(t, q.text))) == 0 })
}

func parse(t *testing.T, query string) parser.Expr {
	t.Helper()
	e, err := promql.ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return e
}

// selectors returns the selectors of an expression that name a metric of the
// programs.
func selectors(e parser.Node) (all []*parser.VectorSelector) {
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok && !strings.Contains(s.Name, foreign) {
			all = append(all, s)
		}
		return nil
	})
	return all
}

// series are all series of /metrics.
type series []model.Metric

// find returns the series that a selector matches, without the labels that
// Prometheus adds to every series.
func (all series) find(matchers []*labels.Matcher) (found series) {
	for _, one := range all {
		matches := func(m *labels.Matcher) bool {
			return slices.Contains(commonLabels, m.Name) || m.Matches(string(one[model.LabelName(m.Name)]))
		}
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !matches(m) }) {
			found = append(found, one)
		}
	}
	return found
}

func (all series) have(label string) bool {
	return slices.ContainsFunc(all, func(m model.Metric) bool { return m[model.LabelName(label)] != "" })
}

// unmatched returns the selectors and labels of a query that match no series.
func (all series) unmatched(t *testing.T, query string) (missing []string) {
	t.Helper()
	e := parse(t, query)
	for _, s := range selectors(e) {
		if len(all.find(s.LabelMatchers)) == 0 {
			missing = append(missing, "no series matches "+s.String())
		}
		missing = append(missing, all.unmatchedWords(s)...)
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		a, ok := n.(*parser.AggregateExpr)
		if !ok || a.Without {
			return nil
		}
		for _, s := range selectors(a.Expr) {
			for _, label := range a.Grouping {
				if !slices.Contains(commonLabels, label) && !all.find(s.LabelMatchers).have(label) {
					missing = append(missing, fmt.Sprintf("%s is grouped by the label %s, which no series has", s, label))
				}
			}
		}
		return nil
	})
	return missing
}

// unmatchedWords returns the words of label=~"one|another" that no series has,
// except rare ones.
func (all series) unmatchedWords(s *parser.VectorSelector) (missing []string) {
	for i, m := range s.LabelMatchers {
		if m.Type != labels.MatchRegexp {
			continue
		}
		for _, word := range m.SetMatches() {
			exactly := slices.Clone(s.LabelMatchers)
			exactly[i] = labels.MustNewMatcher(labels.MatchEqual, m.Name, word)
			one := fmt.Sprintf("%s{%s=%q}", s.Name, m.Name, word)
			if _, isRare := rare[one]; !isRare && len(all.find(exactly)) == 0 {
				missing = append(missing, fmt.Sprintf("no series matches %s with %s=%q", s, m.Name, word))
			}
		}
	}
	return missing
}

// checkTable checks that each metric of metrics.yaml has a series with its
// labels.
func (all series) checkTable(t *testing.T) {
	t.Helper()
	r := &report{}
	var table metricTable
	if _, _, err := decodeStrict(os.DirFS(repository), metricsFile, &table, r); err != nil || len(r.findings) > 0 {
		t.Fatalf("%v\n%s", err, lines(r.findings))
	}
	for _, m := range table.Metrics {
		if strings.Contains(m.Name, foreign) {
			continue
		}
		name := m.Name
		if m.Type == "histogram" {
			name += "_count"
		}
		found := all.find([]*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name)})
		if len(found) == 0 {
			t.Errorf("%s lists %s, which has no series", metricsFile, m.Name)
			continue
		}
		for _, label := range commonLabels {
			if found.have(label) {
				t.Errorf("%s has a label %s, which Prometheus replaces", m.Name, label)
			}
		}
		for _, label := range m.Labels {
			if !found.have(label) {
				t.Errorf("%s lists the label %s of %s, which no series has", metricsFile, label, m.Name)
			}
		}
	}
}

// checkRare reports rows of the table that are not needed, or whose value is
// not documented.
func (all series) checkRare(t *testing.T) {
	t.Helper()
	page := read(t, os.DirFS(repository), operatingPage)
	for name, reason := range rare {
		s := selectors(parse(t, name))[0]
		if len(all.find(s.LabelMatchers)) > 0 {
			t.Errorf("%s is not rare: the test has such a series", name)
		}
		for _, m := range s.LabelMatchers {
			if m.Name != model.MetricNameLabel && !strings.Contains(page, "`"+m.Value+"`") {
				t.Errorf("%s does not list %q (%s)", operatingPage, m.Value, reason)
			}
		}
	}
}
