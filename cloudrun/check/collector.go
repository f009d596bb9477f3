package main

import (
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const collectorFile = "cloudrun/collector.yaml"

// collectorConfig is the common part of a collector's configuration, without
// the settings of each component, which are not checked.
type collectorConfig struct {
	Extensions map[string]any `json:"extensions"`
	Receivers  map[string]any `json:"receivers"`
	Processors map[string]any `json:"processors"`
	Exporters  map[string]any `json:"exporters"`
	Service    struct {
		Extensions []string            `json:"extensions"`
		Telemetry  any                 `json:"telemetry"`
		Pipelines  map[string]pipeline `json:"pipelines"`
	} `json:"service"`
}

type pipeline struct {
	Receivers  []string `json:"receivers"`
	Processors []string `json:"processors"`
	Exporters  []string `json:"exporters"`
}

// built are the components of the collector's image that are in use here.
var built = map[string][]string{
	"extensions": {"health_check"},
	"receivers":  {"otlp"},
	"processors": {"memory_limiter", "resourcedetection", "batch"},
	"exporters":  {"googlemanagedprometheus", "googlecloud"},
}

// checkCollector resolves the pipelines, and reports a batch of metrics.
func checkCollector(root fs.FS, r *report) error {
	var c collectorConfig
	d, ok, err := decodeStrict(root, collectorFile, &c, r)
	if !ok || err != nil {
		return err
	}
	declared := map[string]map[string]any{
		"extensions": c.Extensions, "receivers": c.Receivers, "processors": c.Processors, "exporters": c.Exporters,
	}
	for _, kind := range slices.Sorted(maps.Keys(declared)) {
		for name := range declared[kind] {
			component, _, _ := strings.Cut(name, "/")
			if !slices.Contains(built[kind], component) {
				r.add(d.at(kind+"."+name), "%s is not one of the %s of the image that this check knows", component, kind)
			}
		}
	}
	resolve := func(kind string, names []string, path string) {
		for i, name := range names {
			if _, found := declared[kind][name]; !found {
				r.add(d.at(path+"["+strconv.Itoa(i)+"]"), "%s is not declared under %s", name, kind)
			}
		}
	}
	resolve("extensions", c.Service.Extensions, "service.extensions")
	for _, name := range slices.Sorted(maps.Keys(c.Service.Pipelines)) {
		p, path := c.Service.Pipelines[name], "service.pipelines."+name
		resolve("receivers", p.Receivers, path+".receivers")
		resolve("processors", p.Processors, path+".processors")
		resolve("exporters", p.Exporters, path+".exporters")
		for i, processor := range p.Processors {
			if name == "metrics" && strings.HasPrefix(processor, "batch") {
				r.add(d.at(path+".processors["+strconv.Itoa(i)+"]"), "metrics must not be batched: Managed Service for Prometheus refuses two points of a series in one call")
			}
		}
	}
	return nil
}
