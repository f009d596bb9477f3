package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// kinds are the resources that run a program.
var kinds = map[string]string{
	"google_cloud_run_v2_service":     "Service",
	"google_cloud_run_v2_worker_pool": "WorkerPool",
	"google_cloud_run_v2_job":         "Job",
}

// readUnits returns the services, pools and jobs of an evaluated configuration.
func (t *terraform) readUnits(e *evaluation) (units []*unit) {
	for address, v := range e.values {
		kind, ok := kinds[strings.Split(address, ".")[0]]
		if !ok || !v.IsKnown() {
			continue
		}
		for _, one := range eachInstance(v) {
			u := &unitReader{t: t, block: t.resources[address], v: one}
			units = append(units, u.read(kind))
		}
	}
	return units
}

// eachInstance returns a resource's one object, or those of for_each or count.
func eachInstance(v cty.Value) []cty.Value {
	if v.Type().IsObjectType() && v.Type().HasAttribute("name") {
		return []cty.Value{v}
	}
	var all []cty.Value
	if v.CanIterateElements() {
		for it := v.ElementIterator(); it.Next(); {
			if _, one := it.Element(); one.Type().IsObjectType() {
				all = append(all, one)
			}
		}
	}
	return all
}

// unitReader reads a resource's value, and finds the place of its parts in the
// source.
type unitReader struct {
	t     *terraform
	block *hclsyntax.Block
	v     cty.Value
	u     *unit
}

// at finds the place of an argument by the names of the blocks around it. nth
// selects one of several blocks with the same name.
func (r *unitReader) at(nth int, names ...string) place {
	body, found := r.block.Body, rangePlace(r.block.DefRange())
	for i, name := range names {
		if a := body.Attributes[name]; a != nil {
			return rangePlace(a.SrcRange)
		}
		skip := 0
		if name == "containers" {
			skip = nth
		}
		var next *hclsyntax.Body
		for _, b := range body.Blocks {
			if b.Type != name {
				continue
			}
			if skip == 0 {
				next, found = b.Body, rangePlace(b.TypeRange)
				break
			}
			skip--
		}
		if next == nil {
			return found
		}
		if i < len(names)-1 {
			body = next
		}
	}
	return found
}

// text returns the value under names, which are attributes and single blocks.
func text(v cty.Value, names ...string) (_ string, known bool) {
	for _, name := range names {
		v = member(v, name)
	}
	switch {
	case v == cty.NilVal || !v.IsKnown():
		return "", v != cty.NilVal && v.IsKnown()
	case v.IsNull():
		return "", true
	case v.Type() == cty.String:
		return v.AsString(), true
	case v.Type() == cty.Number:
		return v.AsBigFloat().Text('f', -1), true
	case v.Type() == cty.Bool:
		return fmt.Sprint(v.True()), true
	case v.CanIterateElements():
		var all []string
		for it := v.ElementIterator(); it.Next(); {
			_, one := it.Element()
			word, known := text(one)
			if !known {
				return "", false
			}
			all = append(all, word)
		}
		return strings.Join(all, " "), true
	}
	return "", false
}

// member returns an attribute, or the first block of that name, or null.
func member(v cty.Value, name string) cty.Value {
	null := cty.NullVal(cty.String)
	if v == cty.NilVal || !v.IsKnown() {
		return v
	}
	if v.IsNull() {
		return null
	}
	if v.Type().IsTupleType() {
		if v.LengthInt() == 0 {
			return null
		}
		return member(v.Index(cty.NumberIntVal(0)), name)
	}
	if v.Type().IsMapType() && v.HasIndex(cty.StringVal(name)).True() {
		return v.Index(cty.StringVal(name))
	}
	if v.Type().IsObjectType() && v.Type().HasAttribute(name) {
		return v.GetAttr(name)
	}
	return null
}

// put records a field of the unit, as unknown if only an apply knows it.
func (r *unitReader) put(name string, from cty.Value, nth int, names ...string) {
	value, known := text(from, names[len(names)-depth(names):]...)
	at := r.at(nth, names...)
	if !known {
		r.u.fields[name] = field{"", false, at}
		return
	}
	r.u.set(name, strings.TrimSuffix(value, "s"), at)
}

// depth returns how many names follow the last block that the caller entered:
// containers, or template.
func depth(names []string) int {
	for i, name := range slices.Backward(names) {
		if name == "containers" || name == "template" {
			return len(names) - 1 - i
		}
	}
	return len(names)
}

func (r *unitReader) read(kind string) *unit {
	name, _ := text(r.v, "name")
	r.u = newUnit(name, kind, r.at(0, "name"))
	template, path := member(r.v, "template"), []string{"template"}
	if kind == "Job" {
		template, path = member(template, "template"), []string{"template", "template"}
	}
	in := func(names ...string) []string { return append(slices.Clip(path), names...) }
	switch kind {
	case "Service":
		r.put("min", template, 0, in("scaling", "min_instance_count")...)
		r.put("max", template, 0, in("scaling", "max_instance_count")...)
		r.put("concurrency", template, 0, in("max_instance_request_concurrency")...)
		r.put("timeout", template, 0, in("timeout")...)
		r.put("cpu_idle", member(template, "containers"), 0, in("containers", "resources", "cpu_idle")...)
		r.put("startup_boost", member(template, "containers"), 0, in("containers", "resources", "startup_cpu_boost")...)
	case "WorkerPool":
		r.put("instances", r.v, 0, "scaling", "manual_instance_count")
	case "Job":
		r.put("timeout", template, 0, in("timeout")...)
		r.put("retries", template, 0, in("max_retries")...)
	}
	containers := member(template, "containers")
	if containers == cty.NilVal || !containers.IsKnown() || !containers.CanIterateElements() {
		return r.u
	}
	nth := 0
	for it := containers.ElementIterator(); it.Next(); nth++ {
		_, c := it.Element()
		r.container(c, nth, in("containers"))
	}
	return r.u
}

func (r *unitReader) container(c cty.Value, nth int, path []string) {
	name, _ := text(c, "name")
	put := func(field string, names ...string) {
		r.put(name+"."+field, c, nth, append(slices.Clip(path), names...)...)
	}
	put("image", "image")
	put("command", "command")
	put("args", "args")
	put("port", "ports", "container_port")
	put("cpu", "resources", "limits", "cpu")
	put("memory", "resources", "limits", "memory")
	for _, probe := range []string{"startup", "liveness"} {
		put(probe+".path", probe+"_probe", "http_get", "path")
		put(probe+".port", probe+"_probe", "http_get", "port")
		put(probe+".period", probe+"_probe", "period_seconds")
		put(probe+".timeout", probe+"_probe", "timeout_seconds")
		put(probe+".threshold", probe+"_probe", "failure_threshold")
	}
	if name != r.u.name {
		return
	}
	variables := member(c, "env")
	if !variables.IsKnown() || !variables.CanIterateElements() {
		return
	}
	for it := variables.ElementIterator(); it.Next(); {
		_, e := it.Element()
		variable, _ := text(e, "name")
		value, known := text(e, "value")
		if secret, _ := text(e, "value_source", "secret_key_ref", "secret"); value == "" {
			value = "secret " + secret
		}
		at := r.t.placeOf(variable, r.u.place)
		r.u.env[variable] = field{value, known, at}
	}
}

// placeOf returns the first line of the configuration with the name, or
// otherwise if there is none.
func (t *terraform) placeOf(name string, otherwise place) place {
	if at, ok := t.names[name]; ok {
		return at
	}
	return otherwise
}

var nameForm = regexp.MustCompile(`[A-Z][A-Z0-9_]+`)

// recordNames records the first place of each variable's name, in capitals,
// outside comments.
func (t *terraform) recordNames(file string, text []byte) {
	for i, line := range strings.Split(string(text), "\n") {
		before, _, _ := strings.Cut(line, "#")
		for _, name := range nameForm.FindAllString(before, -1) {
			if _, seen := t.names[name]; !seen {
				t.names[name] = place{file, i + 1}
			}
		}
	}
}
