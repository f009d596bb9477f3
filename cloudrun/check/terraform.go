package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

const terraformFolder = "cloudrun/terraform"

// terraform is the parsed configuration under cloudrun/terraform.
type terraform struct {
	root      fs.FS
	schema    *providerSchema
	variables map[string]*hclsyntax.Block
	locals    map[string]*hclsyntax.Attribute
	// resources are the resources by address, such as google_sql_user.holdfast,
	// ephemerals those such as ephemeral.random_password.database.
	resources, ephemerals map[string]*hclsyntax.Block
	// files are the bodies, for the checks that apply to every block.
	files []*hclsyntax.Body
	// used are the names that are referred to: var.x, local.x.
	used map[string]bool
}

// home is the configuration evaluated with one value of the variable worker.
type home struct {
	name   string
	values map[string]cty.Value // values of resources, by address
	locals map[string]cty.Value
	// localAt are the places of the locals, variables the values of the
	// variables.
	localAt   map[string]place
	variables map[string]cty.Value
}

// readTerraform parses the configuration, makes the checks that do not depend
// on variables, and evaluates each home.
func readTerraform(root fs.FS, r *report) ([]*home, error) {
	schema, err := readSchema(root)
	if err != nil {
		return nil, err
	}
	if stale, err := schema.stale(root); err != nil {
		return nil, err
	} else if stale {
		r.add(place{schemaFile, 1}, "it was made from another cloudrun/check/schema: run make generate")
	}
	t := &terraform{
		root: root, schema: schema, used: map[string]bool{},
		variables: map[string]*hclsyntax.Block{}, locals: map[string]*hclsyntax.Attribute{},
		resources: map[string]*hclsyntax.Block{}, ephemerals: map[string]*hclsyntax.Block{},
	}
	before := len(r.findings)
	if err := t.parse(r); err != nil {
		return nil, err
	}
	if len(r.findings) > before && len(t.files) == 0 {
		return nil, nil
	}
	t.checkVersions(r)
	t.checkReferences(r)
	t.checkUnused(r)
	var homes []*home
	for _, worker := range []string{"pool", "job"} {
		homes = append(homes, t.evaluate(worker, r))
	}
	return homes, nil
}

// parse reads the files. A file that is not formatted, or does not parse, is a
// finding.
func (t *terraform) parse(r *report) error {
	files, err := fs.Glob(t.root, terraformFolder+"/*.tf")
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := fs.ReadFile(t.root, file)
		if err != nil {
			return err
		}
		parsed, diags := hclsyntax.ParseConfig(text, file, hcl.InitialPos)
		if diags.HasErrors() {
			addDiagnostics(r, diags)
			continue
		}
		if formatted := hclwrite.Format(text); !bytes.Equal(text, formatted) {
			r.add(place{file, firstDifference(text, formatted)}, "it is not formatted: run terraform fmt")
		}
		body, ok := parsed.Body.(*hclsyntax.Body)
		if !ok {
			return fmt.Errorf("%s is not in HCL's native syntax", file)
		}
		t.files = append(t.files, body)
		t.declare(body, r)
	}
	return nil
}

func firstDifference(a, b []byte) int {
	left, right := bytes.Split(a, []byte("\n")), bytes.Split(b, []byte("\n"))
	for i := range min(len(left), len(right)) {
		if !bytes.Equal(left[i], right[i]) {
			return i + 1
		}
	}
	return min(len(left), len(right))
}

// declare records the declarations of a file. A duplicate, or a block unknown
// to this check, is a finding.
func (t *terraform) declare(body *hclsyntax.Body, r *report) {
	for _, b := range body.Blocks {
		var into map[string]*hclsyntax.Block
		switch b.Type {
		case "variable":
			into = t.variables
		case "resource":
			into = t.resources
		case "ephemeral":
			into = t.ephemerals
		case "locals":
			for name, a := range b.Body.Attributes {
				if t.locals[name] != nil {
					r.add(rangePlace(a.SrcRange), "local.%s is declared twice", name)
				}
				t.locals[name] = a
			}
			continue
		case "terraform", "provider", "output":
			continue
		default:
			r.add(rangePlace(b.TypeRange), "this check does not know the block %q", b.Type)
			continue
		}
		name := strings.Join(b.Labels, ".")
		if into[name] != nil {
			r.add(rangePlace(b.DefRange()), "%s %s is declared twice", b.Type, name)
		}
		into[name] = b
	}
}

// checkVersions compares required_providers with the provider whose schema is
// in google.json.
func (t *terraform) checkVersions(r *report) {
	for _, body := range t.files {
		for _, b := range body.Blocks {
			if b.Type == "provider" {
				for name, a := range b.Body.Attributes {
					if name != "project" && name != "region" {
						r.add(rangePlace(a.SrcRange), "this check does not know the provider's %s", name)
					}
				}
			}
			if b.Type != "terraform" {
				continue
			}
			for _, inner := range b.Body.Blocks {
				a := inner.Body.Attributes["google"]
				if inner.Type != "required_providers" || a == nil {
					continue
				}
				v, diags := a.Expr.Value(nil)
				if want := "~> " + t.schema.Version; diags.HasErrors() || v.GetAttr("version").AsString() != want {
					r.add(rangePlace(a.SrcRange), "the provider's version must be %q, whose schema cloudrun/check/google.json is", want)
				}
			}
		}
	}
}

// checkUnused reports variables and locals that nothing refers to.
func (t *terraform) checkUnused(r *report) {
	for name, b := range t.variables {
		if !t.used["var."+name] {
			r.add(rangePlace(b.DefRange()), "the variable %s is not used", name)
		}
	}
	for name, a := range t.locals {
		if !t.used["local."+name] {
			r.add(rangePlace(a.SrcRange), "local.%s is not used", name)
		}
	}
}

func rangePlace(rng hcl.Range) place { return place{rng.Filename, rng.Start.Line} }

// addDiagnostics turns the parser's and the evaluator's diagnostics into
// findings.
func addDiagnostics(r *report, diags hcl.Diagnostics) {
	for _, d := range diags {
		if d.Severity != hcl.DiagError {
			continue
		}
		at := place{terraformFolder, 1}
		if d.Subject != nil {
			at = rangePlace(*d.Subject)
		}
		r.add(at, "%s: %s", strings.TrimSuffix(d.Summary, "."), oneLine(d.Detail))
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
