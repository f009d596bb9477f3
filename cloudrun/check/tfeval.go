package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/dynblock"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// given are the variables without a default, with the values of the manifests.
var given = map[string]cty.Value{
	"project": cty.StringVal("PROJECT_ID"),
	"region":  cty.StringVal("REGION"),
	"image":   cty.StringVal("REGION-docker.pkg.dev/PROJECT_ID/holdfast/holdfast:VERSION"),
}

// evaluation is one evaluation of the configuration. As in a plan, values that
// only an apply knows are unknown.
type evaluation struct {
	*terraform
	r   *report
	ctx *hcl.EvalContext
	// values are the values of resources by address, ephemeralValues those of
	// ephemerals.
	values, ephemeralValues map[string]cty.Value
	homes                   *home
}

// evaluate evaluates the configuration with worker, and the defaults of the
// other variables.
func (t *terraform) evaluate(worker string, r *report) *home {
	e := &evaluation{
		terraform: t, r: r, values: map[string]cty.Value{}, ephemeralValues: map[string]cty.Value{},
		homes: &home{name: worker, locals: map[string]cty.Value{}, localAt: map[string]place{}, variables: map[string]cty.Value{}},
	}
	e.ctx = &hcl.EvalContext{
		Functions: functions(t.root, terraformFolder),
		Variables: map[string]cty.Value{"path": cty.ObjectVal(map[string]cty.Value{"module": cty.StringVal(".")})},
	}
	e.evaluateVariables(worker)
	// The values of a resource can depend on another resource's. Three passes
	// are enough for this configuration. The findings of the last pass count.
	for range 3 {
		e.r = &report{}
		e.evaluateLocals()
		e.evaluateResources()
	}
	e.evaluateOutputs()
	r.findings = append(r.findings, e.r.findings...)
	e.homes.values = e.values
	return e.homes
}

func (e *evaluation) evaluateVariables(worker string) {
	all := e.homes.variables
	for name, b := range e.variables {
		want := cty.DynamicPseudoType
		if a := b.Body.Attributes["type"]; a != nil {
			var diags hcl.Diagnostics
			want, diags = typeexpr.TypeConstraint(a.Expr)
			addDiagnostics(e.r, diags)
		}
		v, known := given[name]
		switch a := b.Body.Attributes["default"]; {
		case name == "worker":
			v = cty.StringVal(worker)
		case a != nil:
			var diags hcl.Diagnostics
			v, diags = a.Expr.Value(e.ctx)
			addDiagnostics(e.r, diags)
		case !known:
			e.r.add(rangePlace(b.DefRange()), "the variable %s has no default, and cloudrun/check/tfeval.go no value for it", name)
			v = cty.DynamicVal
		}
		converted, err := convert.Convert(v, want)
		if err != nil {
			e.r.add(rangePlace(b.DefRange()), "the default of %s: %v", name, err)
			converted = cty.DynamicVal
		}
		all[name] = converted
	}
	e.ctx.Variables["var"] = cty.ObjectVal(all)
	for _, name := range slices.Sorted(maps.Keys(e.variables)) {
		for _, b := range e.variables[name].Body.Blocks {
			if b.Type == "validation" {
				e.condition(b, e.ctx)
			}
		}
	}
}

// evaluateLocals evaluates the locals in the order of their references.
func (e *evaluation) evaluateLocals() {
	done := map[string]cty.Value{}
	var visit func(name string, above []string)
	visit = func(name string, above []string) {
		a := e.locals[name]
		if _, seen := done[name]; a == nil || seen {
			return
		}
		if slices.Contains(above, name) {
			e.r.add(rangePlace(a.SrcRange), "local.%s refers to itself", name)
			done[name] = cty.DynamicVal
			return
		}
		for _, traversal := range a.Expr.Variables() {
			if names := attributes(traversal); traversal.RootName() == "local" && len(names) > 0 {
				visit(names[0], append(slices.Clone(above), name))
			}
		}
		e.ctx.Variables["local"] = cty.ObjectVal(done)
		v, diags := a.Expr.Value(e.ctx)
		addDiagnostics(e.r, diags)
		done[name] = v
		e.homes.localAt[name] = rangePlace(a.SrcRange)
	}
	for _, name := range slices.Sorted(maps.Keys(e.locals)) {
		visit(name, nil)
	}
	e.ctx.Variables["local"] = cty.ObjectVal(done)
	e.homes.locals = done
}

func (e *evaluation) evaluateResources() {
	e.publish()
	for _, address := range slices.Sorted(maps.Keys(e.ephemerals)) {
		e.ephemeralValues[address] = e.instances(e.ephemerals[address], e.schema.Ephemeral)
	}
	for _, address := range slices.Sorted(maps.Keys(e.resources)) {
		e.values[address] = e.instances(e.resources[address], e.schema.Resources)
	}
}

// publish makes the known values of resources available to expressions. Values
// that are not evaluated yet are unknown.
func (e *evaluation) publish() {
	roots := map[string]map[string]cty.Value{}
	put := func(declared map[string]*hclsyntax.Block, values map[string]cty.Value, roots map[string]map[string]cty.Value) {
		for address := range declared {
			kind, name, _ := strings.Cut(address, ".")
			if roots[kind] == nil {
				roots[kind] = map[string]cty.Value{}
			}
			roots[kind][name] = cty.DynamicVal
			if v, ok := values[address]; ok {
				roots[kind][name] = v
			}
		}
	}
	put(e.resources, e.values, roots)
	for kind, names := range roots {
		e.ctx.Variables[kind] = cty.ObjectVal(names)
	}
	ephemerals := map[string]map[string]cty.Value{}
	put(e.ephemerals, e.ephemeralValues, ephemerals)
	kinds := map[string]cty.Value{}
	for kind, names := range ephemerals {
		kinds[kind] = cty.ObjectVal(names)
	}
	e.ctx.Variables["ephemeral"] = cty.ObjectVal(kinds)
}

// metaArguments are the arguments that Terraform defines for every resource.
var metaArguments = &hcl.BodySchema{
	Attributes: []hcl.AttributeSchema{{Name: "for_each"}, {Name: "count"}, {Name: "depends_on"}, {Name: "provider"}},
	Blocks:     []hcl.BlockHeaderSchema{{Type: "lifecycle"}},
}

// instances decodes a resource: one object, one for each key with for_each, or
// a list with count.
func (e *evaluation) instances(b *hclsyntax.Block, schemas map[string]*schemaBlock) cty.Value {
	schema := schemas[b.Labels[0]]
	if schema == nil {
		e.r.add(rangePlace(b.DefRange()), "%s is not in google.json: name it in cloudrun/check/schema and run make generate, if the provider has it", b.Labels[0])
		return cty.DynamicVal
	}
	if a := b.Body.Attributes["for_each"]; a != nil {
		all, diags := a.Expr.Value(e.ctx)
		addDiagnostics(e.r, diags)
		if diags.HasErrors() || !all.IsKnown() || !all.CanIterateElements() {
			return cty.DynamicVal
		}
		made := map[string]cty.Value{}
		for it := all.ElementIterator(); it.Next(); {
			key, value := it.Element()
			if all.Type().IsSetType() {
				key = value
			}
			if !key.IsKnown() || key.Type() != cty.String {
				return cty.DynamicVal
			}
			each := cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})
			made[key.AsString()] = e.decode(b, schema, map[string]cty.Value{"each": each})
		}
		return cty.ObjectVal(made)
	}
	if a := b.Body.Attributes["count"]; a != nil {
		n, diags := a.Expr.Value(e.ctx)
		addDiagnostics(e.r, diags)
		if diags.HasErrors() || !n.IsKnown() || n.Type() != cty.Number {
			return cty.DynamicVal
		}
		var made []cty.Value
		for i := range intOf(n) {
			count := cty.ObjectVal(map[string]cty.Value{"index": cty.NumberIntVal(int64(i))})
			made = append(made, e.decode(b, schema, map[string]cty.Value{"count": count}))
		}
		return cty.TupleVal(made)
	}
	return e.decode(b, schema, nil)
}

func intOf(v cty.Value) int {
	n, _ := v.AsBigFloat().Int64()
	return int(n)
}

// decode checks one instance against its schema, and returns its known values.
func (e *evaluation) decode(b *hclsyntax.Block, schema *schemaBlock, scope map[string]cty.Value) cty.Value {
	ctx := e.ctx.NewChild()
	ctx.Variables = scope
	if scope == nil {
		ctx.Variables = map[string]cty.Value{}
	}
	content, rest, diags := b.Body.PartialContent(metaArguments)
	addDiagnostics(e.r, diags)
	v, diags := hcldec.Decode(dynblock.Expand(rest, ctx), schema.decoder, ctx)
	addDiagnostics(e.r, diags)
	schema.checkValues(b.Body, ctx, e.r)
	for _, lifecycle := range content.Blocks {
		body, ok := lifecycle.Body.(*hclsyntax.Body)
		if !ok {
			continue
		}
		for _, inner := range body.Blocks {
			e.condition(inner, ctx)
		}
	}
	if diags.HasErrors() {
		return cty.DynamicVal
	}
	return schema.complete(v)
}

// condition evaluates a validation or a precondition. If it does not hold, it
// reports the message of the block.
func (e *evaluation) condition(b *hclsyntax.Block, ctx *hcl.EvalContext) {
	a, message := b.Body.Attributes["condition"], b.Body.Attributes["error_message"]
	if a == nil || message == nil {
		e.r.add(rangePlace(b.TypeRange), "a %s needs a condition and an error_message", b.Type)
		return
	}
	holds, diags := a.Expr.Value(ctx)
	addDiagnostics(e.r, diags)
	text, diags := message.Expr.Value(ctx)
	addDiagnostics(e.r, diags)
	if holds.IsKnown() && holds.Type() == cty.Bool && holds.False() {
		said := "it does not hold"
		if text.IsKnown() && text.Type() == cty.String {
			said = text.AsString()
		}
		e.r.add(rangePlace(a.SrcRange), "with the defaults: %s", said)
	}
}

func (e *evaluation) evaluateOutputs() {
	e.publish()
	for _, body := range e.files {
		for _, b := range body.Blocks {
			if b.Type != "output" && b.Type != "provider" {
				continue
			}
			for _, a := range b.Body.Attributes {
				_, diags := a.Expr.Value(e.ctx)
				addDiagnostics(e.r, diags)
			}
		}
	}
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
