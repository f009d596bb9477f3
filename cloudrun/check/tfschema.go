package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

const schemaFile = "cloudrun/check/google.json"

// providerSchema is the content of google.json, which cloudrun/check/schema
// writes.
type providerSchema struct {
	Source    string                  `json:"source"`
	Version   string                  `json:"version"`
	Resources map[string]*schemaBlock `json:"resources"`
	Ephemeral map[string]*schemaBlock `json:"ephemeral"`
}

type schemaBlock struct {
	Attributes map[string]*schemaAttribute `json:"attributes"`
	Blocks     map[string]*struct {
		schemaBlock
		Min int `json:"min"`
		Max int `json:"max"`
	} `json:"blocks"`

	decoder hcldec.ObjectSpec
}

type schemaAttribute struct {
	Type       json.RawMessage `json:"type"`
	Required   bool            `json:"required"`
	Optional   bool            `json:"optional"`
	Computed   bool            `json:"computed"`
	Deprecated bool            `json:"deprecated"`
	Values     []string        `json:"values"`
	cty        cty.Type
}

// randomPassword is a resource of the provider hashicorp/random, which cannot
// be imported. The source is its documentation of 3.7.
var randomPassword = &schemaBlock{Attributes: map[string]*schemaAttribute{
	"length":           {Type: []byte(`"number"`), Required: true},
	"special":          {Type: []byte(`"bool"`), Optional: true},
	"upper":            {Type: []byte(`"bool"`), Optional: true},
	"lower":            {Type: []byte(`"bool"`), Optional: true},
	"numeric":          {Type: []byte(`"bool"`), Optional: true},
	"override_special": {Type: []byte(`"string"`), Optional: true},
	"result":           {Type: []byte(`"string"`), Computed: true},
	"bcrypt_hash":      {Type: []byte(`"string"`), Computed: true},
}}

// sources are the files from which google.json is made.
var sources = []string{"cloudrun/check/schema/main.go", "cloudrun/check/schema/go.mod"}

// stale reports whether google.json was made from other sources than the
// present ones.
func (s *providerSchema) stale(root fs.FS) (bool, error) {
	sum := sha256.New()
	for _, file := range sources {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			return false, err
		}
		_, _ = sum.Write(text) // a hash accepts any input
	}
	return hex.EncodeToString(sum.Sum(nil)) != s.Source, nil
}

func readSchema(root fs.FS) (*providerSchema, error) {
	text, err := fs.ReadFile(root, schemaFile)
	if err != nil {
		return nil, err
	}
	s := &providerSchema{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", schemaFile, err)
	}
	s.Ephemeral["random_password"] = randomPassword
	for _, all := range []map[string]*schemaBlock{s.Resources, s.Ephemeral} {
		for name, b := range all {
			if err := b.parseTypes(); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", schemaFile, name, err)
			}
		}
	}
	return s, nil
}

func (b *schemaBlock) parseTypes() (err error) {
	for name, a := range b.Attributes {
		if a.cty, err = ctyjson.UnmarshalType(a.Type); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, inner := range b.Blocks {
		if err := inner.parseTypes(); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	b.decoder = b.spec()
	return nil
}

// spec describes the arguments and blocks of a block for the decoder of HCL.
// Arguments that only the provider sets are not allowed.
func (b *schemaBlock) spec() hcldec.ObjectSpec {
	spec := hcldec.ObjectSpec{}
	for name, a := range b.Attributes {
		if a.Required || a.Optional {
			spec[name] = &hcldec.AttrSpec{Name: name, Type: a.cty, Required: a.Required}
		}
	}
	for name, inner := range b.Blocks {
		spec[name] = &hcldec.BlockTupleSpec{TypeName: name, Nested: inner.decoder, MinItems: inner.Min, MaxItems: inner.Max}
	}
	return spec
}

// complete returns a decoded block as a reference sees it: attributes that the
// provider sets, and that have no value yet, are unknown.
func (b *schemaBlock) complete(v cty.Value) cty.Value {
	if !v.IsKnown() || v.IsNull() {
		return v
	}
	all := v.AsValueMap()
	for name, a := range b.Attributes {
		if given, ok := all[name]; a.Computed && (!ok || given.IsNull()) {
			all[name] = cty.UnknownVal(a.cty)
		}
	}
	return cty.ObjectVal(all)
}

// find returns the attribute or block at a path of names, or nil if there is
// none.
func (b *schemaBlock) find(names []string) bool {
	for i, name := range names {
		if a := b.Attributes[name]; a != nil {
			return i == len(names)-1 || !a.cty.IsPrimitiveType()
		}
		inner := b.Blocks[name]
		if inner == nil {
			return false
		}
		b = &inner.schemaBlock
	}
	return true
}

// checkValues reports values that the provider's description does not list, and
// deprecated arguments.
func (b *schemaBlock) checkValues(body *hclsyntax.Body, ctx *hcl.EvalContext, r *report) {
	for name, given := range body.Attributes {
		a := b.Attributes[name]
		if a == nil {
			continue
		}
		if a.Deprecated {
			r.add(rangePlace(given.SrcRange), "the provider calls %s deprecated", name)
		}
		v, diags := given.Expr.Value(ctx)
		if len(a.Values) == 0 || diags.HasErrors() || v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
			continue
		}
		if !slices.Contains(a.Values, v.AsString()) {
			r.add(rangePlace(given.SrcRange), "%s must be one of %s, not %q", name, strings.Join(a.Values, ", "), v.AsString())
		}
	}
	for _, inner := range body.Blocks {
		name, content := inner.Type, inner.Body
		if name == "dynamic" && len(inner.Labels) == 1 {
			name = inner.Labels[0]
			for _, c := range inner.Body.Blocks {
				content = c.Body
			}
		}
		if nested := b.Blocks[name]; nested != nil {
			nested.checkValues(content, ctx, r)
		}
	}
}
