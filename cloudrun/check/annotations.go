package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The types of the API accept any annotation, and Cloud Run ignores most
// annotations of another kind: a minimum of instances on a worker pool's
// template has no effect. So this table lists the annotations of each kind that
// are in use here, with the form of the value. Its source is the description of
// ObjectMeta in google.golang.org/api/run/v1. That does not list WorkerPool,
// whose annotations are from the output of gcloud.
var annotations = map[string]map[string]*regexp.Regexp{
	"Service": {
		"run.googleapis.com/description":          anyText,
		"run.googleapis.com/ingress":              oneOf("all", "internal", "internal-and-cloud-load-balancing"),
		"run.googleapis.com/invoker-iam-disabled": boolean,
		"run.googleapis.com/default-url-disabled": boolean,
		"run.googleapis.com/launch-stage":         stage,
		"run.googleapis.com/minScale":             digits,
		"run.googleapis.com/maxScale":             digits,
	},
	"Service template": {
		"autoscaling.knative.dev/minScale":          digits,
		"autoscaling.knative.dev/maxScale":          digits,
		"run.googleapis.com/cloudsql-instances":     instances,
		"run.googleapis.com/container-dependencies": anyText,
		"run.googleapis.com/cpu-throttling":         boolean,
		"run.googleapis.com/execution-environment":  environment,
		"run.googleapis.com/network-interfaces":     anyText,
		"run.googleapis.com/sessionAffinity":        boolean,
		"run.googleapis.com/startup-cpu-boost":      boolean,
		"run.googleapis.com/vpc-access-egress":      egress,
		"run.googleapis.com/health-check-disabled":  boolean,
		"run.googleapis.com/encryption-key":         anyText,
	},
	"WorkerPool": {
		"run.googleapis.com/description":         anyText,
		"run.googleapis.com/launch-stage":        stage,
		"run.googleapis.com/manualInstanceCount": digits,
		"run.googleapis.com/scalingMode":         oneOf("manual"),
	},
	"WorkerPool template": {
		"run.googleapis.com/cloudsql-instances":     instances,
		"run.googleapis.com/container-dependencies": anyText,
		"run.googleapis.com/network-interfaces":     anyText,
		"run.googleapis.com/vpc-access-egress":      egress,
		"run.googleapis.com/encryption-key":         anyText,
	},
	"Job": {
		"run.googleapis.com/launch-stage":         stage,
		"run.googleapis.com/binary-authorization": anyText,
	},
	"Job template": {
		"run.googleapis.com/cloudsql-instances":    instances,
		"run.googleapis.com/execution-environment": environment,
		"run.googleapis.com/network-interfaces":    anyText,
		"run.googleapis.com/vpc-access-egress":     egress,
		"run.googleapis.com/encryption-key":        anyText,
	},
}

var (
	anyText     = regexp.MustCompile(`.`)
	boolean     = oneOf("true", "false")
	digits      = regexp.MustCompile(`^\d+$`)
	stage       = oneOf("ALPHA", "BETA", "GA")
	environment = oneOf("gen1", "gen2")
	egress      = oneOf("all-traffic", "private-ranges-only")
	instances   = regexp.MustCompile(`^[^:,]+:[^:,]+:[^:,]+(,[^:,]+:[^:,]+:[^:,]+)*$`)
)

func oneOf(values ...string) *regexp.Regexp {
	return regexp.MustCompile("^(" + strings.Join(values, "|") + ")$")
}

// checkAnnotations reports annotations that a kind does not have. of is the
// kind: Service, Service template and so on.
func checkAnnotations(d *document, path, of string, given map[string]string, r *report) {
	for _, name := range slices.Sorted(maps.Keys(given)) {
		at := d.at(join(path+".annotations", name))
		form, known := annotations[of][name]
		switch {
		case !known:
			r.add(at, "a %s has no annotation %s%s", of, name, elsewhere(name))
		case !form.MatchString(given[name]):
			r.add(at, "the annotation %s must match %s, not %q", name, form, given[name])
		}
	}
}

func elsewhere(name string) string {
	for _, of := range slices.Sorted(maps.Keys(annotations)) {
		if _, known := annotations[of][name]; known {
			return fmt.Sprintf(", which a %s has", of)
		}
	}
	return ""
}
