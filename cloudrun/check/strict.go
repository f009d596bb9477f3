package main

import (
	"fmt"
	"io/fs"
	"reflect"
	"strings"

	yamlnode "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// document is a decoded YAML file, with the line of each of its fields.
type document struct {
	file string
	// lines are the lines by path, such as
	// spec.template.spec.containers[0].env[2].name.
	lines map[string]int
}

func (d *document) at(path string) place {
	for {
		if line, ok := d.lines[path]; ok {
			return place{d.file, line}
		}
		cut := strings.LastIndexAny(path, ".[")
		if cut < 0 {
			return place{d.file, 1}
		}
		path = path[:cut]
	}
}

// decodeStrict decodes a YAML file into the struct that out points to. It
// reports each field that the struct does not have, each value of another type,
// and each duplicate key. ok is true if there is no such error.
func decodeStrict(root fs.FS, file string, out any, r *report) (_ *document, ok bool, err error) {
	text, err := fs.ReadFile(root, file)
	if err != nil {
		return nil, false, err
	}
	d := &document{file: file, lines: map[string]int{}}
	before := len(r.findings)
	var tree yamlnode.Node
	if err := yamlnode.Unmarshal(text, &tree); err != nil {
		r.add(place{file, yamlLine(err)}, "it is not YAML: %v", err)
		return d, false, nil
	}
	if len(tree.Content) == 0 {
		r.add(place{file, 1}, "it is empty")
		return d, false, nil
	}
	d.walk(tree.Content[0], "", reflect.TypeOf(out).Elem(), "", r)
	// The walk finds lines; the decoder decides.
	if err := yaml.UnmarshalStrict(text, out); err != nil {
		if len(r.findings) == before {
			r.add(place{file, 1}, "it cannot be decoded: %v", err)
		}
		return d, false, nil
	}
	return d, len(r.findings) == before, nil
}

// walk compares a node with the type into which it is decoded, and records its
// line under path. tag is the field's JSON tag.
func (d *document) walk(n *yamlnode.Node, path string, t reflect.Type, tag string, r *report) {
	d.lines[path] = n.Line
	if n.Kind == yamlnode.AliasNode {
		n = n.Alias
	}
	if n.Tag == "!!null" {
		return
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	at := place{d.file, n.Line}
	switch t.Kind() {
	case reflect.Struct:
		if n.Kind != yamlnode.MappingNode {
			r.add(at, "%s must have fields", path)
			return
		}
		d.walkStruct(n, path, t, r)
	case reflect.Map:
		if n.Kind != yamlnode.MappingNode {
			r.add(at, "%s must have keys", path)
			return
		}
		d.eachKey(n, path, r, func(key string, value *yamlnode.Node) {
			d.walk(value, join(path, key), t.Elem(), "", r)
			d.lines[join(path, key)] = value.Line
		})
	case reflect.Slice:
		if n.Kind != yamlnode.SequenceNode {
			r.add(at, "%s must be a list", path)
			return
		}
		for i, item := range n.Content {
			d.walk(item, fmt.Sprintf("%s[%d]", path, i), t.Elem(), "", r)
		}
	case reflect.Interface:
	default:
		checkScalar(n, path, t, tag, at, r)
	}
}

func (d *document) walkStruct(n *yamlnode.Node, path string, t reflect.Type, r *report) {
	d.eachKey(n, path, r, func(key string, value *yamlnode.Node) {
		field, tag, found := jsonField(t, key)
		if !found {
			r.add(place{d.file, value.Line}, "%s is not a field of %s", join(path, key), kindName(t))
			return
		}
		d.walk(value, join(path, key), field.Type, tag, r)
	})
}

// eachKey calls do with each key of a mapping. The keys of a merge (<<) come
// first and may be overridden.
func (d *document) eachKey(n *yamlnode.Node, path string, r *report, do func(string, *yamlnode.Node)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag == "!!merge" {
			if value.Kind == yamlnode.AliasNode {
				value = value.Alias
			}
			d.eachKey(value, path, r, do)
			continue
		}
		if seen[key.Value] {
			r.add(place{d.file, key.Line}, "%s occurs twice", join(path, key.Value))
			continue
		}
		seen[key.Value] = true
		at := *value
		at.Line = key.Line
		do(key.Value, &at)
	}
}

func checkScalar(n *yamlnode.Node, path string, t reflect.Type, tag string, at place, r *report) {
	if n.Kind != yamlnode.ScalarNode {
		r.add(at, "%s must be one value", path)
		return
	}
	isText := n.Tag == "!!str"
	quotedNumber := strings.HasSuffix(tag, ",string")
	switch k := t.Kind(); {
	case k == reflect.String && !isText:
		r.add(at, "%s must be a text, in quotes: %q", path, n.Value)
	case quotedNumber && !isText:
		r.add(at, "%s must be a number in quotes: \"%s\"", path, n.Value)
	case k == reflect.Bool && n.Tag != "!!bool":
		r.add(at, "%s must be true or false, without quotes, not %q", path, n.Value)
	case k == reflect.Int64 && !quotedNumber && n.Tag != "!!int":
		r.add(at, "%s must be a whole number, without quotes, not %q", path, n.Value)
	}
}

// jsonField returns the field of a struct into which a key is decoded.
func jsonField(t reflect.Type, key string) (_ reflect.StructField, tag string, found bool) {
	for field := range t.Fields() {
		tag := field.Tag.Get("json")
		name, _, _ := strings.Cut(tag, ",")
		if name == key && name != "-" {
			return field, tag, true
		}
	}
	return reflect.StructField{}, "", false
}

func kindName(t reflect.Type) string {
	if t.Name() == "" {
		return "it"
	}
	return t.Name()
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// yamlLine returns the line that an error of the YAML parser names: "yaml: line
// 7: …".
func yamlLine(err error) int {
	line := 1
	_, after, found := strings.Cut(err.Error(), "line ")
	if found {
		_, _ = fmt.Sscanf(after, "%d", &line) // line 1 otherwise
	}
	return line
}
