package main

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"path"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	ctyyaml "github.com/zclconf/go-cty-yaml"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// functions are Terraform's functions that the configuration calls. A call of
// another one is a finding; add it here.
func functions(root fs.FS, folder string) map[string]function.Function {
	return map[string]function.Function{
		"can":        tryfunc.CanFunc,
		"try":        tryfunc.TryFunc,
		"concat":     stdlib.ConcatFunc,
		"contains":   stdlib.ContainsFunc,
		"file":       fileFunc(root, folder),
		"join":       stdlib.JoinFunc,
		"keys":       stdlib.KeysFunc,
		"length":     stdlib.LengthFunc,
		"max":        stdlib.MaxFunc,
		"merge":      stdlib.MergeFunc,
		"regex":      stdlib.RegexFunc,
		"setproduct": stdlib.SetProductFunc,
		"setunion":   stdlib.SetUnionFunc,
		"sha256":     sha256Func,
		"split":      stdlib.SplitFunc,
		"substr":     stdlib.SubstrFunc,
		"sum":        sumFunc,
		"toset":      stdlib.MakeToFunc(cty.Set(cty.DynamicPseudoType)),
		"tobool":     stdlib.MakeToFunc(cty.Bool),
		"tostring":   stdlib.MakeToFunc(cty.String),
		"yamldecode": ctyyaml.YAMLDecodeFunc,
	}
}

// fileFunc reads a file whose name is relative to the configuration's folder.
func fileFunc(root fs.FS, folder string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			text, err := fs.ReadFile(root, path.Join(folder, args[0].AsString()))
			if err != nil {
				return cty.UnknownVal(cty.String), function.NewArgError(0, err)
			}
			return cty.StringVal(string(text)), nil
		},
	})
}

var sha256Func = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "text", Type: cty.String}},
	Type:   function.StaticReturnType(cty.String),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		sum := sha256.Sum256([]byte(args[0].AsString()))
		return cty.StringVal(hex.EncodeToString(sum[:])), nil
	},
})

var sumFunc = function.New(&function.Spec{
	Params: []function.Parameter{{Name: "numbers", Type: cty.DynamicPseudoType}},
	Type:   function.StaticReturnType(cty.Number),
	Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		total := cty.Zero
		for it := args[0].ElementIterator(); it.Next(); {
			_, v := it.Element()
			if !v.IsKnown() || v.Type() != cty.Number {
				return cty.UnknownVal(cty.Number), nil
			}
			total = total.Add(v)
		}
		return total, nil
	},
})
