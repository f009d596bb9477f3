package main

import (
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

var promql = parser.NewParser(parser.Options{})

// commonLabels are the labels that Prometheus, Managed Service for Prometheus or
// Cloud Monitoring add to every series.
var commonLabels = []string{"job", "instance", "cluster", "location", "namespace", "project_id", "monitored_resource"}

// checkQuery parses a PromQL expression and checks its metrics and labels.
func checkQuery(query string, known *metricTable, at place, r *report) {
	if query == "" {
		r.add(at, "the query is empty")
		return
	}
	e, err := promql.ParseExpr(query)
	if err != nil {
		r.add(at, "the query cannot be parsed: %v", err)
		return
	}
	if len(known.byName) == 0 { // the error in metrics.yaml is a separate finding
		return
	}
	parser.Inspect(e, func(n parser.Node, above []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			checkSelector(n, above, known, at, r)
		case *parser.AggregateExpr:
			checkGrouping(n, known, at, r)
		}
		return nil
	})
}

// lookUp finds the metric by the name of a series. A histogram has three series
// names.
func (t *metricTable) lookUp(series string) (_ *metric, suffix string) {
	if m := t.byName[series]; m != nil && m.Type != "histogram" {
		return m, ""
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if name, ok := strings.CutSuffix(series, suffix); ok && t.byName[name] != nil && t.byName[name].Type == "histogram" {
			return t.byName[name], suffix
		}
	}
	return nil, ""
}

func (m *metric) has(label, suffix string) bool {
	return slices.Contains(m.Labels, label) || slices.Contains(commonLabels, label) || label == "le" && suffix == "_bucket"
}

// ofCounters are the functions for series that only increase.
var ofCounters = []string{"rate", "increase", "irate"}

func checkSelector(s *parser.VectorSelector, above []parser.Node, known *metricTable, at place, r *report) {
	m, suffix := known.lookUp(s.Name)
	if m == nil {
		r.add(at, "the query names %s, which is not in %s", s.Name, metricsFile)
		return
	}
	for _, matcher := range s.LabelMatchers {
		if matcher.Name != model.MetricNameLabel && !m.has(matcher.Name, suffix) {
			r.add(at, "the query selects %s by the label %s, which it does not have", s.Name, matcher.Name)
		}
	}
	grows := m.Type != "gauge"
	asked := slices.ContainsFunc(above, func(n parser.Node) bool {
		call, ok := n.(*parser.Call)
		return ok && slices.Contains(ofCounters, call.Func.Name)
	})
	// absent and unless test whether there is such a series, not its value.
	missing := slices.ContainsFunc(above, func(n parser.Node) bool {
		if binary, ok := n.(*parser.BinaryExpr); ok {
			return binary.Op == parser.LUNLESS
		}
		call, ok := n.(*parser.Call)
		return ok && strings.HasPrefix(call.Func.Name, "absent")
	})
	switch {
	case grows && !asked && !missing:
		r.add(at, "the query uses %s without a rate, but it only increases: use its rate or increase", s.Name)
	case !grows && asked:
		r.add(at, "the query has the rate of %s, which is a gauge", s.Name)
	}
}

func checkGrouping(a *parser.AggregateExpr, known *metricTable, at place, r *report) {
	if a.Without {
		return
	}
	parser.Inspect(a.Expr, func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		m, suffix := known.lookUp(s.Name)
		for _, label := range a.Grouping {
			if m != nil && !m.has(label, suffix) {
				r.add(at, "the query groups %s by the label %s, which it does not have", s.Name, label)
			}
		}
		return nil
	})
}
