package main

import (
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// checkReferences resolves every reference: to variables, locals, resources and
// their attributes, and to the iterator of an enclosing dynamic block.
func (t *terraform) checkReferences(r *report) {
	for _, body := range t.files {
		t.checkBody("", body, nil, r)
	}
}

// checkBody checks the body of a block; of is the block's type.
func (t *terraform) checkBody(of string, body *hclsyntax.Body, iterators []string, r *report) {
	for name, a := range body.Attributes {
		if of == "variable" && name == "type" { // string and list(string) are not references
			continue
		}
		for _, traversal := range a.Expr.Variables() {
			t.checkTraversal(traversal, iterators, r)
		}
	}
	for _, b := range body.Blocks {
		inner := iterators
		if b.Type == "dynamic" && len(b.Labels) == 1 {
			inner = append(slices.Clone(iterators), b.Labels[0])
		}
		t.checkBody(b.Type, b.Body, inner, r)
	}
}

// scoped are the names that Terraform defines in some blocks only. The
// evaluation finds those in other blocks.
var scoped = []string{"each", "count", "path", "self", "terraform"}

func (t *terraform) checkTraversal(traversal hcl.Traversal, iterators []string, r *report) {
	root, at := traversal.RootName(), rangePlace(traversal.SourceRange())
	if slices.Contains(scoped, root) || slices.Contains(iterators, root) {
		return
	}
	names := attributes(traversal)
	switch root {
	case "var", "local":
		if len(names) == 0 {
			r.add(at, "%s needs a name", root)
			return
		}
		t.used[root+"."+names[0]] = true
		if root == "var" && t.variables[names[0]] == nil || root == "local" && t.locals[names[0]] == nil {
			r.add(at, "%s.%s is not declared", root, names[0])
		}
	case "ephemeral":
		t.checkResource("ephemeral.", names, t.ephemerals, t.schema.Ephemeral, at, r)
	default:
		t.checkResource("", append([]string{root}, names...), t.resources, t.schema.Resources, at, r)
	}
}

func (t *terraform) checkResource(prefix string, names []string, declared map[string]*hclsyntax.Block, schemas map[string]*schemaBlock, at place, r *report) {
	if len(names) < 2 {
		r.add(at, "%s%s cannot be referred to", prefix, names[0])
		return
	}
	address := names[0] + "." + names[1]
	if declared[address] == nil {
		r.add(at, "%s%s is not declared", prefix, address)
		return
	}
	if s := schemas[names[0]]; s != nil && len(names) > 2 && !s.find(names[2:]) {
		r.add(at, "%s%s has no attribute %s", prefix, address, names[2])
	}
}

// attributes returns the names of a traversal after its root, without indexes.
func attributes(traversal hcl.Traversal) (names []string) {
	for _, step := range traversal[1:] {
		if a, ok := step.(hcl.TraverseAttr); ok {
			names = append(names, a.Name)
		}
	}
	return names
}
