package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"cloud.google.com/go/monitoring/dashboard/apiv1/dashboardpb"
	"google.golang.org/protobuf/encoding/protojson"
)

const (
	cloudBoard   = "cloudrun/dashboards/cloud-monitoring.json"
	grafanaBoard = "cloudrun/dashboards/grafana.json"
)

// grafana has the fields of Grafana's dashboards that are in use here. Grafana
// publishes no strict Go type.
type grafana struct {
	Title         string     `json:"title"`
	UID           string     `json:"uid"`
	Tags          []string   `json:"tags"`
	SchemaVersion int        `json:"schemaVersion"`
	Version       int        `json:"version"`
	Refresh       string     `json:"refresh"`
	Time          timeRange  `json:"time"`
	Templating    templating `json:"templating"`
	Panels        []panel    `json:"panels"`
}

type timeRange struct {
	From string `json:"from"`
	To   string `json:"to"`
}

type templating struct {
	List []struct {
		Name  string `json:"name"`
		Label string `json:"label"`
		Type  string `json:"type"`
		Query string `json:"query"`
	} `json:"list"`
}

type panel struct {
	ID         int    `json:"id"`
	Type       string `json:"type"`
	Title      string `json:"title"`
	Datasource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	} `json:"datasource"`
	GridPos     map[string]int `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
			Min  int    `json:"min"`
		} `json:"defaults"`
		Overrides []any `json:"overrides"`
	} `json:"fieldConfig"`
	Options struct {
		Legend  map[string]string `json:"legend"`
		Tooltip map[string]string `json:"tooltip"`
	} `json:"options"`
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

// checkDashboards decodes both dashboards and checks their queries. Both must
// have the same queries under the same titles.
func checkDashboards(root fs.FS, known *metricTable, r *report) error {
	cloudText, err := fs.ReadFile(root, cloudBoard)
	if err != nil {
		return err
	}
	grafanaText, err := fs.ReadFile(root, grafanaBoard)
	if err != nil {
		return err
	}
	ours, theirs := cloudQueries(cloudText, r), grafanaQueries(grafanaText, r)
	for _, board := range []struct {
		file    string
		text    []byte
		queries map[string][]string
	}{{cloudBoard, cloudText, ours}, {grafanaBoard, grafanaText, theirs}} {
		for title, queries := range board.queries {
			for _, q := range queries {
				checkQuery(q, known, place{board.file, lineOf(board.text, q)}, r)
			}
			if len(queries) == 0 {
				r.add(place{board.file, lineOf(board.text, title)}, "the chart %q has no query", title)
			}
		}
	}
	if ours == nil || theirs == nil {
		return nil
	}
	for _, title := range slices.Sorted(maps.Keys(ours)) {
		if !slices.Equal(ours[title], theirs[title]) {
			r.add(place{cloudBoard, lineOf(cloudText, title)}, "the chart %q has another query than in %s", title, grafanaBoard)
		}
	}
	for _, title := range slices.Sorted(maps.Keys(theirs)) {
		if _, both := ours[title]; !both {
			r.add(place{grafanaBoard, lineOf(grafanaText, title)}, "the chart %q is not in %s", title, cloudBoard)
		}
	}
	return nil
}

// cloudQueries returns the queries by title, or nil if the file cannot be
// decoded.
func cloudQueries(text []byte, r *report) map[string][]string {
	var board dashboardpb.Dashboard
	if err := protojson.Unmarshal(text, &board); err != nil {
		r.add(place{cloudBoard, protoLine(err)}, "it is not a dashboard of Cloud Monitoring: %v", oneLine(err.Error()))
		return nil
	}
	all := map[string][]string{}
	for _, tile := range board.GetMosaicLayout().GetTiles() {
		title := tile.GetWidget().GetTitle()
		all[title] = []string{}
		for _, set := range tile.GetWidget().GetXyChart().GetDataSets() {
			all[title] = append(all[title], set.GetTimeSeriesQuery().GetPrometheusQuery())
		}
		if x, w := tile.GetXPos(), tile.GetWidth(); x+w > board.GetMosaicLayout().GetColumns() {
			r.add(place{cloudBoard, lineOf(text, title)}, "the chart %q is wider than the dashboard", title)
		}
	}
	return all
}

func grafanaQueries(text []byte, r *report) map[string][]string {
	var board grafana
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&board); err != nil {
		r.add(place{grafanaBoard, jsonLine(text, decoder, err)}, "it is not a dashboard of Grafana: %v", err)
		return nil
	}
	all, ids := map[string][]string{}, map[int]bool{}
	for _, p := range board.Panels {
		at := place{grafanaBoard, lineOf(text, p.Title)}
		if ids[p.ID] || all[p.Title] != nil {
			r.add(at, "the panel %q, %d, occurs twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		all[p.Title] = []string{}
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	return all
}

// lineOf returns the line of a JSON text that contains the string.
func lineOf(text []byte, value string) int {
	var quoted bytes.Buffer
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil { // a string can always be encoded
		return 1
	}
	return lineAt(text, bytes.Index(text, bytes.TrimSpace(quoted.Bytes())))
}

func lineAt(text []byte, offset int) int {
	if offset < 0 {
		return 1
	}
	return 1 + bytes.Count(text[:min(offset, len(text))], []byte("\n"))
}

// jsonLine returns the line at which decoding stopped: at a value of another
// type, or after an unknown field.
func jsonLine(text []byte, decoder *json.Decoder, err error) int {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return lineAt(text, int(wrong.Offset))
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return lineAt(text, int(syntax.Offset))
	}
	if _, name, found := strings.Cut(err.Error(), "unknown field "); found {
		return lineAt(text, bytes.Index(text, []byte(name+":")))
	}
	return lineAt(text, int(decoder.InputOffset()))
}

// protoLine returns the line that protojson names: "proto: (line 7:3): …".
func protoLine(err error) int { return yamlLine(err) }
