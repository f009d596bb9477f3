package main

import (
	"go/ast"
	"go/token"
	"strconv"
	"strings"
)

// instrument is a metric that the code makes.
type instrument struct {
	// kind is the type in Prometheus: counter, gauge or histogram.
	kind string
	// unit is the unit of OpenTelemetry, such as "s", or "" for a count.
	unit string
}

// makers are the methods of an OpenTelemetry meter, without Int64, Float64 and
// Observable.
var makers = map[string]string{"Counter": "counter", "UpDownCounter": "gauge", "Gauge": "gauge", "Histogram": "histogram"}

// instrumentPrefix is the prefix of the name of each instrument of this
// project.
const instrumentPrefix = "holdfast."

// readInstruments reads the instruments of one package. An instrument is made
// in one of three ways:
//
//   - by a method of a meter: meter.Int64Counter("holdfast.job.successes", …);
//   - by a function of the package that calls such a method with its own
//     argument: counter("holdfast.job.successes", …);
//   - by a loop over a list of {…, name, unit, …} in the function that calls
//     the method.
func (c *code) readInstruments(files []*ast.File) {
	helpers := map[string]instrument{}
	for _, f := range files {
		for _, d := range f.Decls {
			if function, ok := d.(*ast.FuncDecl); ok {
				c.readMaker(function, helpers)
			}
		}
	}
	for _, f := range files {
		c.readHelped(f, helpers)
	}
}

// readMaker records the instruments that a function makes. If the function is a
// helper, it adds it to helpers.
func (c *code) readMaker(function *ast.FuncDecl, helpers map[string]instrument) {
	ast.Inspect(function, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		name := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(method.Sel.Name, "Int64"), "Float64"), "Observable")
		kind, ok := makers[name]
		if !ok {
			return true
		}
		made := instrument{kind, unitOf(call)}
		if metric, isText := literalText(call.Args[0]); isText {
			if strings.HasPrefix(metric, instrumentPrefix) {
				c.instruments[metric] = made
			}
			return true
		}
		helpers[function.Name.Name] = made
		c.readList(function, kind)
		return true
	})
}

// readList records the instruments that a function lists as {…, name, unit, …}.
func (c *code) readList(function *ast.FuncDecl, kind string) {
	ast.Inspect(function, func(n ast.Node) bool {
		list, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		for i, element := range list.Elts {
			metric, isText := literalText(element)
			if !isText || !strings.HasPrefix(metric, instrumentPrefix) || i+1 == len(list.Elts) {
				continue
			}
			unit, _ := literalText(list.Elts[i+1])
			c.instruments[metric] = instrument{kind, countless(unit)}
		}
		return true
	})
}

// readHelped records the instruments that helpers of the package make.
func (c *code) readHelped(f *ast.File, helpers map[string]instrument) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		function, ok := call.Fun.(*ast.Ident)
		if !ok {
			return true
		}
		made, isHelper := helpers[function.Name]
		metric, isText := literalText(call.Args[0])
		if isHelper && isText && strings.HasPrefix(metric, instrumentPrefix) {
			c.instruments[metric] = made
		}
		return true
	})
}

// unitOf returns the unit in metric.WithUnit("s"), an argument of the call, or
// "" without one.
func unitOf(call *ast.CallExpr) string {
	for _, argument := range call.Args {
		option, ok := argument.(*ast.CallExpr)
		if !ok || len(option.Args) != 1 {
			continue
		}
		if method, ok := option.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "WithUnit" {
			unit, _ := literalText(option.Args[0])
			return countless(unit)
		}
	}
	return ""
}

// countless returns "" for a unit in braces, such as {request}, which
// Prometheus leaves out of the name.
func countless(unit string) string {
	if strings.HasPrefix(unit, "{") {
		return ""
	}
	return unit
}

func literalText(e ast.Expr) (string, bool) {
	literal, ok := e.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}
